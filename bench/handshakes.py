"""`python -m bench.handshakes`: how long TLS handshakes and key derivations hold the event loop.

The server's side of a handshake runs on the loop, step by step: what counts is the longest step, in CPU time of this
thread, of a thousand full handshakes (none resumes a session). Keys are derived from passwords in threads: while a
thousand derivations run as logins run them, a timer of this loop notes how late it is.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import logging
import ssl
import time
from types import SimpleNamespace
from typing import Any

import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from penstock.broker.authentication.verifications import Verifications
from penstock.broker.log_limiter import SparingLog
from penstock.broker.net.tls import TlsStream
from penstock.security.credentials import ScramMechanism, salted_password
from penstock.security.principal import ANONYMOUS
from penstock.security.sasl.exchange import Accepted
from penstock.settings.tls import TlsSettings
from penstock.tls.authority import Authority, Issued
from penstock.tls.contexts import TlsContexts

NOW = datetime.datetime.now(datetime.UTC)
TICK_S = 0.001
ITERATIONS = 8192  # as `penstock users` makes them


class Raw:
    """As much of a socket's transport as a handshake needs."""

    def __init__(self) -> None:
        self.sent = bytearray()

    def write(self, data: bytes) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return False


def rsa_certificate(bits: int) -> Issued:
    """Signed by itself: the server does not care."""
    key = rsa.generate_private_key(65537, bits)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "node")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(NOW).not_valid_after(NOW + datetime.timedelta(days=9))
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()
    return Issued(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(), certificate)


def shake(server: ssl.SSLContext, client: ssl.SSLContext, loop: asyncio.AbstractEventLoop) -> list[int]:
    """The CPU time of each step of the server, in nanoseconds."""
    raw, buffer, shaken = Raw(), bytearray(1 << 17), []
    connection: Any = SimpleNamespace(
        connection_made=lambda _: None, peer_host="127.0.0.1", get_buffer=lambda _: bytearray(1 << 16)
    )
    complaints = SparingLog(logging.getLogger("bench"), loop.time)
    stream = TlsStream(server, connection, buffer, loop, 0.1, lambda *_: shaken.append(True), complaints)
    stream.connection_made(raw)  # type: ignore[arg-type]
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    end = client.wrap_bio(incoming, outgoing)
    steps = []
    while not shaken:
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
        data = outgoing.read()
        buffer[: len(data)] = data
        begin = time.thread_time_ns()
        stream.buffer_updated(len(data))
        steps.append(time.thread_time_ns() - begin)
        incoming.write(bytes(raw.sent))
        raw.sent.clear()
    return steps


def measure_handshakes(name: str, issued: Issued, count: int, loop: asyncio.AbstractEventLoop, **tls: Any) -> None:
    contexts = TlsContexts(
        TlsSettings(ssl_keystore_key=issued.key, ssl_keystore_certificate_chain=issued.certificate, **tls)
    )
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    if tls:
        client = contexts.connecting
        client.check_hostname = False
    handshakes = [shake(contexts.accepting, client, loop) for _ in range(count)]
    longest = sorted(max(steps) for steps in handshakes)
    whole = sorted(sum(steps) for steps in handshakes)
    print(
        f"{name}: {count} handshakes; longest step {longest[-1] / 1e6:.2f} ms, 99 % below "
        f"{longest[int(count * 0.99)] / 1e6:.2f} ms; a handshake {whole[count // 2] / 1e6:.2f} ms (median)"
    )


async def measure_derivations(count: int) -> None:
    loop = asyncio.get_running_loop()
    verifications = Verifications(loop)
    done = loop.create_future()
    left, late_ns = count, []

    def derive() -> Accepted:
        salted_password(ScramMechanism.SCRAM_SHA_512, "a password", b"a salt", ITERATIONS)
        return Accepted(b"", ANONYMOUS)

    def ended(_: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set_result(None)

    def tick(due: float) -> None:
        late_ns.append(loop.time() - due)
        if not done.done():
            loop.call_later(TICK_S, tick, loop.time() + TICK_S)

    began = time.perf_counter()
    for number in range(count):
        verifications.run("127.0.0.1", number, derive, ended)
    tick(loop.time())
    await done
    late = sorted(late_ns)
    print(
        f"SCRAM-SHA-512, {ITERATIONS} iterations: {count} derivations in {time.perf_counter() - began:.2f} s; "
        f"the loop was late by at most {late[-1] * 1e3:.2f} ms, 99 % below {late[int(len(late) * 0.99)] * 1e3:.2f} ms"
    )


async def measure(count: int) -> None:
    loop = asyncio.get_running_loop()
    authority = Authority.create("Bench CA", NOW)
    elliptic = authority.issue("node", ["localhost"], NOW)
    measure_handshakes("P-256", elliptic, count, loop)
    both_ways = {"ssl_client_auth": "required", "ssl_truststore_certificates": authority.certificate}
    measure_handshakes("P-256, client certificates", elliptic, count, loop, **both_ways)
    for bits in (2048, 4096):
        measure_handshakes(f"RSA {bits}", rsa_certificate(bits), count, loop)
    await measure_derivations(count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    options = parser.parse_args()
    uvloop.run(measure(options.count))


if __name__ == "__main__":
    main()
