"""Where a `$ref` leads: into the schema itself, or into one that it refers to. Nothing is ever fetched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urldefrag, urljoin

from penstock.schemas.model import InvalidSchema, load_json

# Keywords whose values are data, not schemas: an `$id` in them names nothing.
_DATA = frozenset({"const", "default", "enum", "examples"})
_META_SCHEMAS = ("http://json-schema.org/", "https://json-schema.org/")


@dataclass(frozen=True, slots=True)
class Place:
    """A subschema, and the URI that relative references in it start from."""

    schema: object
    base: str


ANYTHING = Place(True, "")


class Documents:
    def __init__(self, root: object, references: Sequence[tuple[str, str]]) -> None:
        self._by_uri: dict[str, Place] = {}
        self._anchors: dict[tuple[str, str], Place] = {}
        for name, text in references:
            try:
                schema = load_json(text)
            except InvalidSchema as error:
                raise InvalidSchema(f"the reference {name:.100}: {error}") from None
            self._add(schema, name)
            self._by_uri.setdefault(name, Place(schema, base_of(schema, name)))
        self._add(root, "")
        self.root = Place(root, base_of(root, ""))
        self._by_uri[""] = self.root

    def resolve(self, ref: str, base: str) -> Place:
        uri, fragment, literal = _parts(ref, base)
        document = self._by_uri.get(uri) or (self._by_uri.get(literal) if literal else None)
        if document is None:
            if uri.startswith(_META_SCHEMAS):
                return ANYTHING
            raise InvalidSchema(f"the $ref {ref!r:.200} leads to no schema, nor to a reference of it")
        fragment = unquote(fragment)
        if not fragment:
            return document
        if fragment.startswith("/"):
            return _walk(document, fragment, ref)
        place = self._anchors.get((uri, fragment)) or self._anchors.get((literal, fragment))
        if place is None:
            raise InvalidSchema(f"the $ref {ref!r:.200} names no anchor of the schema")
        return place

    def _add(self, schema: object, uri: str) -> None:
        """Registers every `$id` and `$anchor`."""
        waiting: list[tuple[object, str]] = [(schema, uri)]
        while waiting:
            value, base = waiting.pop()
            if isinstance(value, list):
                waiting += [(item, base) for item in value]
            if not isinstance(value, dict):
                continue
            inner = base_of(value, base)
            if inner != base:
                self._by_uri[inner] = Place(value, inner)
            for keyword in ("$anchor", "$dynamicAnchor", "$id", "id"):
                anchor = value.get(keyword)
                if isinstance(anchor, str) and (anchor.startswith("#") or "nchor" in keyword):
                    self._anchors[inner, anchor.removeprefix("#")] = Place(value, inner)
            waiting += [(item, inner) for key, item in value.items() if key not in _DATA]


def _parts(ref: str, base: str) -> tuple[str, str, str]:
    """The URI of the document, the fragment, and the document as it is written: names of references are any strings,
    not always what a URI makes of them."""
    if ref.startswith("#"):  # most do
        return base, ref[1:], ""
    try:
        uri, fragment = urldefrag(urljoin(base, ref))
        return uri, fragment, urldefrag(ref)[0]
    except ValueError:
        raise InvalidSchema(f"the $ref {ref!r:.200} is not a URI") from None


def base_of(schema: object, base: str) -> str:
    """The URI that references in this schema start from: its own, if it has one."""
    if not isinstance(schema, dict):
        return base
    for keyword in ("$id", "id"):
        own = schema.get(keyword)
        if isinstance(own, str) and not own.startswith("#"):
            try:
                return urldefrag(urljoin(base, own))[0]
            except ValueError:
                raise InvalidSchema(f"the {keyword} {own!r:.200} is not a URI") from None
    return base


def _walk(document: Place, pointer: str, ref: str) -> Place:
    value, base = document.schema, document.base
    for part in pointer[1:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and len(key) < 10 and int(key) < len(value):
            value = value[int(key)]
        else:
            raise InvalidSchema(f"the $ref {ref!r:.200} leads nowhere")
        base = base_of(value, base)
    return Place(value, base)
