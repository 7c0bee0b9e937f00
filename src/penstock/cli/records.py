"""What `produce` and `consume` share: settings for librdkafka, and records as text.

librdkafka reports errors through callbacks and its own log. Here the log is silent, and an error becomes the one line
that ends the command.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from penstock.cli.output import fail, parse_pairs, quiet_librdkafka

if TYPE_CHECKING:
    from confluent_kafka import Message

LibrdkafkaPairs = Annotated[
    list[str] | None,
    typer.Option("--property", "-X", metavar="KEY=VALUE", help="Setting of the client, librdkafka; repeatable."),
]

Headers = Sequence[tuple[str, bytes | None]]


def librdkafka_settings(bootstrap_server: str, pairs: Sequence[str] | None, **settings: Any) -> dict[str, Any]:
    """Settings by librdkafka's names, with dots for underscores; the user's come last and win."""
    from penstock.client.access import open_access
    from penstock.client.librdkafka.security import settings_of, with_librdkafka_names

    access = open_access(bootstrap_server)
    return {
        "bootstrap.servers": access.bootstrap,
        **settings_of(access),
        "client.id": "penstock-cli",
        "logger": quiet_librdkafka(),
        **{name.replace("_", "."): value for name, value in settings.items()},
        **with_librdkafka_names(parse_pairs("--property", pairs or ())),
    }


def text_or_base64(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes as JSON: text where they are UTF-8, else {"base64": "..."}."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def bytes_of(value: object, where: str) -> bytes | None:
    """The inverse of `text_or_base64`; any other JSON value becomes its JSON text."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and list(value) == ["base64"] and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error:
            fail(f"{where}: not base64: {value['base64']!r}")
    import json

    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def headers_of(message: Message) -> Headers:
    """The headers as librdkafka returns them: pairs, with bytes as values."""
    return cast("Headers", message.headers() or ())


def record_as_json(message: Message) -> dict[str, Any]:
    _, timestamp = message.timestamp()
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp,
        "key": text_or_base64(message.key()),
        "value": text_or_base64(message.value()),
        "headers": [[name, text_or_base64(value)] for name, value in headers_of(message)],
    }


def formatter(template: str) -> Callable[[Message], bytes]:
    """A record as one line of bytes, by a format's name or a template.

    value, key, json; or text with %v value, %k key, %h headers, %t topic, %p partition, %o offset, %T timestamp, %%.
    """
    if template == "json":
        import json

        return lambda message: json.dumps(record_as_json(message), ensure_ascii=False).encode() + b"\n"
    if template == "value":
        return lambda message: (message.value() or b"") + b"\n"
    if template == "key":
        return lambda message: (message.key() or b"") + b"\n"
    if "%" not in template:
        fail(f"--format {template!r} is none of value, key, json, nor a template such as '%k %v'")
    parts = _parse_template(template)
    return lambda message: b"".join(part if isinstance(part, bytes) else part(message) for part in parts) + b"\n"


def _headers_text(message: Message) -> bytes:
    pairs = (name.encode() + b"=" + (value if value is not None else b"null") for name, value in headers_of(message))
    return b",".join(pairs)


_FIELDS: dict[str, Callable[[Any], bytes]] = {
    "v": lambda message: message.value() or b"",
    "s": lambda message: message.value() or b"",  # as kcat calls it
    "k": lambda message: message.key() or b"",
    "h": _headers_text,
    "t": lambda message: message.topic().encode(),
    "p": lambda message: b"%d" % message.partition(),
    "o": lambda message: b"%d" % message.offset(),
    "T": lambda message: b"%d" % message.timestamp()[1],
    "%": lambda message: b"%",
}


def _parse_template(template: str) -> list[bytes | Callable[[Any], bytes]]:
    text = template.replace("\\n", "\n").replace("\\t", "\t")
    first, *rest = text.replace("%%", "%\0").split("%")
    parts: list[bytes | Callable[[Any], bytes]] = [first.encode()]
    for piece in rest:
        name = "%" if piece[:1] == "\0" else piece[:1]
        if name not in _FIELDS:
            fail(f"--format: unknown field %{name}; there are %v %k %h %t %p %o %T")
        parts += [_FIELDS[name], piece[1:].encode()]
    return parts
