"""A registry without a server: its state, and the log of what was written."""

from __future__ import annotations

from typing import Any

from penstock.registry.core import deletion, records, registration
from penstock.registry.core.candidate import Candidate, Parser
from penstock.registry.core.decision import Decision
from penstock.registry.core.state import State


class Registry:
    def __init__(self) -> None:
        self.state = State()
        self.parser = Parser()
        self.log: list[tuple[bytes, bytes | None]] = []

    def apply(self, decision: Decision) -> Any:
        for record in decision.records:
            self.log.append(record.encoded())
            decoded = records.decode(*self.log[-1])
            self.state.replay(decoded)
            if decoded.value is None:
                self.parser.forget()
        return decision.answer

    def register(self, subject: str, schema: str, **more: Any) -> Any:
        candidate = Candidate(schema, **more)
        return self.apply(registration.register(self.state, self.parser, subject, candidate))

    def soft(self, subject: str, number: int) -> Any:
        return self.apply(deletion.delete_version(self.state, subject, number, permanent=False))

    def hard(self, subject: str, number: int) -> Any:
        return self.apply(deletion.delete_version(self.state, subject, number, permanent=True))

    def compacted(self) -> Registry:
        """A registry that reads what compaction leaves of the log: the last record of each key, no tombstones."""
        last = {key: place for place, (key, _) in enumerate(self.log)}
        other = Registry()
        for place, (key, value) in enumerate(self.log):
            if last[key] == place and value is not None:
                other.log.append((key, value))
                other.state.replay(records.decode(key, value))
        return other
