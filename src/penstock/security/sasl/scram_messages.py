"""The messages of SCRAM, as text: RFC 5802, section 7, within the limits of Kafka's parser.

Names and values are ASCII, the gs2 header is `n,` with an optional authorization id, and there is no mandatory
extension. A message that does not match is `AuthenticationFailed`.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final, NamedTuple

from penstock.security.sasl.exchange import AuthenticationFailed

_SASL_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]++|=2C|=3D)++"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_VALUE: Final = r"[\x01-\x2b\x2d-\x7f]++"
_BASE64: Final = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS: Final = rf"(?:,[A-Za-z]++={_VALUE})*"

_CLIENT_FIRST: Final = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authzid>{_SASL_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_SASL_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST: Final = re.compile(
    rf"r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_EXTENSIONS}"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<unproved>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL: Final = re.compile(rf"(?:e=(?P<error>[^=,]+)|v=(?P<signature>{_BASE64})){_EXTENSIONS}")


class ClientFirst(NamedTuple):
    gs2_header: str
    authorization_id: str
    user: str
    nonce: str
    extensions: dict[str, str]
    # Without the gs2 header: the part that is signed.
    bare: str


class ServerFirst(NamedTuple):
    nonce: str
    salt: bytes
    iterations: int


class ClientFinal(NamedTuple):
    channel_binding: bytes
    nonce: str
    proof: bytes
    without_proof: str


def parse_client_first(message: bytes) -> ClientFirst:
    match = _match(_CLIENT_FIRST, message, "client-first")
    pairs = (entry.partition("=") for entry in match["extensions"].split(",") if entry)
    return ClientFirst(
        match["gs2"],
        unescape(match["authzid"] or ""),
        unescape(match["name"]),
        match["nonce"],
        {name: value for name, _, value in pairs},
        match["bare"],
    )


def parse_server_first(message: bytes) -> ServerFirst:
    match = _match(_SERVER_FIRST, message, "server-first")
    return ServerFirst(match["nonce"], _decode(match["salt"]), int(match["iterations"]))


def parse_client_final(message: bytes) -> ClientFinal:
    match = _match(_CLIENT_FINAL, message, "client-final")
    return ClientFinal(_decode(match["channel"]), match["nonce"], _decode(match["proof"]), match["unproved"])


def parse_server_final(message: bytes) -> bytes:
    """The server's signature; AuthenticationFailed if the server reports an error."""
    match = _match(_SERVER_FINAL, message, "server-final")
    if match["error"] is not None:
        raise AuthenticationFailed(f"the server refuses: {match['error']}")
    return _decode(match["signature"])


def server_first(nonce: str, salt: bytes, iterations: int) -> str:
    return f"r={nonce},s={encode(salt)},i={iterations}"


def escape(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def encode(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise AuthenticationFailed("a SCRAM message whose base64 is malformed") from error


def _match(pattern: re.Pattern[str], message: bytes, name: str) -> re.Match[str]:
    try:
        match = pattern.fullmatch(message.decode("ascii"))
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise AuthenticationFailed(f"a {name} message that does not have SCRAM's format")
    return match
