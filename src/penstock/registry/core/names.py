"""Subjects and contexts.

A context is a name space of subjects and ids. The default context is `.`, and its subjects have plain names; a subject
of another context is written `:.CONTEXT:SUBJECT`, and the context as a whole `:.CONTEXT:`. The context `.__GLOBAL`
contains no subjects: its configuration and mode apply to every context that has none of its own.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.registry.core.errors import invalid_subject

DEFAULT_CONTEXT: Final = "."
GLOBAL_CONTEXT: Final = ".__GLOBAL"
GLOBAL_SCOPE: Final = ":.__GLOBAL:"
NAME_LENGTH_MAX: Final = 1024  # of our own: a name is a part of every record's key

_RESERVED: Final = frozenset({"__GLOBAL", "__EMPTY"})


class Subject(NamedTuple):
    context: str
    name: str

    @property
    def qualified(self) -> str:
        return scope_of(self.context) + self.name

    @property
    def is_context(self) -> bool:
        return not self.name


def parse_subject(text: str) -> Subject:
    """Split a subject into context and name; `:.CONTEXT` and `:.CONTEXT:` are contexts."""
    if not text.startswith(":."):
        return Subject(DEFAULT_CONTEXT, text)
    context, _, name = text[1:].partition(":")
    return Subject(context, name)


def normalized(text: str) -> str:
    """The one spelling of a subject: `:.:name` and `name` are the same."""
    return parse_subject(text).qualified


def context_of(subject: str) -> str:
    return parse_subject(subject).context if subject.startswith(":.") else DEFAULT_CONTEXT


def scope_of(context: str) -> str:
    """How a context is written before its subjects: nothing for the default context."""
    return "" if context == DEFAULT_CONTEXT else f":{context}:"


def context_named(text: str) -> str:
    """The context that a URL or a request names: `ctx`, `.ctx` and `:.ctx:` are the same."""
    name = text.strip(":")
    if ":" in name or not _is_printable(name) or len(name) > NAME_LENGTH_MAX:
        raise invalid_subject(text)
    return name if name.startswith(".") else f".{name}"


def in_context(context: str, subject: str) -> str:
    """A subject as it is named from inside a context: it may name another context itself."""
    return subject if subject.startswith(":.") else normalized(scope_of(context) + subject)


def checked(text: str, *, or_context: bool = False) -> str:
    """The normalized subject; 42208 if it cannot be one. `or_context`: a whole context will do."""
    subject = parse_subject(text)
    valid = (
        len(text) <= NAME_LENGTH_MAX
        and _is_printable(text)
        and subject.name not in _RESERVED
        and (or_context or (not subject.is_context and subject.context != GLOBAL_CONTEXT))
    )
    if not valid:
        raise invalid_subject(text)
    return subject.qualified


def _is_printable(text: str) -> bool:
    """No control characters, and nothing that has no UTF-8."""
    return not any(
        character < " " or "\x7f" <= character < "\xa0" or "\ud800" <= character <= "\udfff" for character in text
    )
