"""Strings and numbers as .proto texts and descriptors write them."""

from __future__ import annotations

import re

from google.protobuf import descriptor_pb2 as pb

from penstock.schemas.protobuf.tokens import Tokens, whole

_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|X[0-9a-fA-F]{1,2}|[0-7]{1,3}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_SIMPLE = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, "'": 39, '"': 34, "?": 63}
_ESCAPED = {
    7: "\\007",
    8: "\\010",
    9: "\\t",
    10: "\\n",
    11: "\\013",
    12: "\\014",
    13: "\\r",
    34: '\\"',
    39: "\\'",
    92: "\\\\",
}

_FLOATS = {pb.FieldDescriptorProto.TYPE_DOUBLE, pb.FieldDescriptorProto.TYPE_FLOAT}
_TEXTS = {
    pb.FieldDescriptorProto.TYPE_STRING,
    pb.FieldDescriptorProto.TYPE_BYTES,
    pb.FieldDescriptorProto.TYPE_MESSAGE,
    pb.FieldDescriptorProto.TYPE_GROUP,
}
_BITS = {
    **dict.fromkeys(("INT32", "SINT32", "SFIXED32"), (-(2**31), 2**31)),
    **dict.fromkeys(("INT64", "SINT64", "SFIXED64"), (-(2**63), 2**63)),
    **dict.fromkeys(("UINT32", "FIXED32"), (0, 2**32)),
    **dict.fromkeys(("UINT64", "FIXED64"), (0, 2**64)),
}


def unquote(literal: str, tokens: Tokens) -> bytes:
    result = bytearray()
    position, body = 0, literal[1:-1]
    for match in _ESCAPE.finditer(body):
        result += body[position : match.start()].encode(errors="surrogatepass")
        result += _unescape(match[1], tokens)
        position = match.end()
    result += body[position:].encode(errors="surrogatepass")
    return bytes(result)


def _unescape(code: str, tokens: Tokens) -> bytes:
    if code in _SIMPLE:
        return bytes([_SIMPLE[code]])
    if code[0] in "xX" and len(code) > 1:
        return bytes([int(code[1:], 16)])
    if code[0] in "01234567" and int(code, 8) < 256:
        return bytes([int(code, 8)])
    if code[0] in "uU" and len(code) > 1 and int(code[1:], 16) < 0x110000:
        return chr(int(code[1:], 16)).encode(errors="surrogatepass")
    raise tokens.error(f"no character is written as \\{code}")


def c_escape(raw: bytes) -> str:
    return "".join(_ESCAPED.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in raw)


def default_number(tokens: Tokens, sign: str, field: pb.FieldDescriptorProto) -> str:
    """The default of a field that is not a string, as descriptors have it: numbers in decimals."""
    token = tokens.next
    kind = field.type
    if field.type_name or kind == pb.FieldDescriptorProto.TYPE_BOOL:
        name = tokens.take_kind("identifier")
        if sign or (not field.type_name and name not in {"true", "false"}):
            raise tokens.error(f"{sign}{name:.50} is no default of {field.name:.50}")
        return name
    if kind in _TEXTS:
        raise tokens.error(f"the default of {field.name:.50} is a string")
    tokens.take()
    if kind in _FLOATS:
        return _default_float(tokens, sign, token.text, token.kind)
    if token.kind != "integer":
        raise tokens.error(f"the default of {field.name:.50} is an integer")
    number = whole(token.text, tokens) * (-1 if sign else 1)
    low, high = _BITS[pb.FieldDescriptorProto.Type.Name(kind).removeprefix("TYPE_")]
    if not low <= number < high:
        raise tokens.error(f"the default of {field.name:.50} is out of range")
    return str(number)


def _default_float(tokens: Tokens, sign: str, text: str, kind: str) -> str:
    if kind == "identifier" and text in {"inf", "nan"}:
        return sign + text
    if kind == "integer":
        return sign + format_float(float(min(whole(text, tokens), 2**1023)))
    if kind != "float":
        raise tokens.error(f"{text:.50} is not a number")
    return sign + format_float(float(text.rstrip("fF")))


def format_float(value: float) -> str:
    """As protoc writes it: the shortest text of 15 to 17 digits that reads as the same number."""
    for digits in (15, 16, 17):
        text = f"{value:.{digits}g}"
        if float(text) == value:
            return text
    return "nan"
