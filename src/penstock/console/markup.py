"""HTML from Python values. Text is escaped unless it is `Markup`, and only this module makes `Markup`.

    tag("a", topic, href=address("/topics/", topic), class_="name")

A console of several clusters has the pages of each under a prefix. Pages do not know it: within `links_under`, every
attribute that is an address of this server gets it.

Attributes: `class_` is class, `data_x` is data-x; None and False are omitted, True has no value. Attribute names and
tag names are part of the program, never data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias
from urllib.parse import quote, urlencode

Child: TypeAlias = "Markup | str | int | float | Iterable[Child] | None"
Attribute: TypeAlias = "str | int | float | bool | None"

VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})
_ESCAPES = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord('"'): "&quot;", ord("'"): "&#39;", 0: "\ufffd"}


_ADDRESSES = frozenset({"href", "action", "data-stream", "data-upload"})
_SHARED = ("//", "/c/", "/static/")
_prefix: ContextVar[str] = ContextVar("prefix", default="")


@contextmanager
def links_under(prefix: str) -> Iterator[None]:
    token = _prefix.set(prefix)
    try:
        yield
    finally:
        _prefix.reset(token)


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


NOTHING = Markup()


def escape(text: str) -> Markup:
    """Lone surrogates, which UTF-8 cannot express, become the replacement character."""
    return Markup(text.encode("utf-8", "replace").decode().translate(_ESCAPES))


def joined(*children: Child) -> Markup:
    parts: list[str] = []
    _add(parts, children)
    return Markup("".join(parts))


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = key.rstrip("_").replace("_", "-")
        parts.append(f" {attribute}")
        if value is not True:
            text = str(value)
            if attribute in _ADDRESSES and text.startswith("/") and not text.startswith(_SHARED):
                text = _prefix.get() + text
            parts.append(f'="{escape(text)}"')
    parts.append(">")
    if name in VOID:
        return Markup("".join(parts))
    _add(parts, children)
    parts.append(f"</{name}>")
    return Markup("".join(parts))


def address(path: str, /, *segments: str, **query: str | int | None) -> str:
    """A path, its last segments quoted, and a query without the parameters that are None or empty."""
    quoted = "".join(quote(segment, safe="") for segment in segments)
    given = {key.rstrip("_"): str(value) for key, value in query.items() if value is not None and value != ""}
    return f"{path}{quoted}{'?' + urlencode(given) if given else ''}"


def _add(parts: list[str], child: Child) -> None:
    if child is None:
        return
    if isinstance(child, Markup):
        parts.append(child)
    elif isinstance(child, str | int | float):
        parts.append(escape(str(child)))
    else:
        for each in child:
            _add(parts, each)
