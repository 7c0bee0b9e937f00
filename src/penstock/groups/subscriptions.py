"""Subscriptions of consumer groups: the topics a group reads, by name and by regular expression.

Expressions are matched when they are new, and again when topics have changed, but at limited intervals. Equal
expressions share the result, within a group (it is in the group's records) and between groups (the compiled form is
cached here).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_member import ConsumerMember
from penstock.groups.draft import Draft
from penstock.groups.records import regex_record, regex_tombstone
from penstock.groups.state import GroupState
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid
from penstock.regex import InvalidRegex, Regex

MayDescribe = Callable[[str], bool] | None

# The number of compiled expressions to cache.
_REMEMBERED: Final = 1000


class Subscriptions:
    def __init__(self, state: GroupState) -> None:
        self._state = state
        self._compiled: dict[str, Regex] = {}
        self._matched: dict[str, tuple[int, frozenset[str]]] = {}

    def topic_ids(self, group: ConsumerGroup, member: ConsumerMember) -> frozenset[Uuid]:
        """Return the ids of the existing topics that the member is subscribed to."""
        found = (self._state.topics.topic_id(name) for name in group.topics_of(member))
        return frozenset(topic_id for topic_id in found if topic_id is not None)

    def update(
        self, draft: Draft, before: ConsumerMember, after: ConsumerMember, may_describe: MayDescribe, now_ms: int
    ) -> bool:
        """Update the group's expressions after a member's subscription changed; True if its expression changed.

        An expression matches only topics that the client may know of, as in Kafka.
        """
        if before.regex == after.regex:
            return False
        self.forget_unused(draft, before.regex)
        if after.regex and after.regex not in draft.group.regexes:
            topics = frozenset(filter(may_describe, self._match(after.regex)))
            self._write(draft, after.regex, topics, now_ms)
        return True

    def forget_unused(self, draft: Draft, regex: str | None) -> None:
        if regex and regex in draft.group.regexes and not draft.group.subscribers_of_regex(regex):
            draft.emit(regex_tombstone(draft.group.group_id, regex))

    def check(self, regex: str | None) -> None:
        """Raise KafkaError if the expression is invalid or too expensive to match."""
        if regex:
            self._match(regex)

    # -- when topics change --------------------------------------------------------------------------------------------

    def is_due(self, group: ConsumerGroup, now_ms: int) -> bool:
        """Whether the group's expressions should be matched again."""
        if not group.regexes:
            return False
        settings = self._state.settings
        last_ms = max(group.regexes_checked_ms, *(regex.timestamp_ms for regex in group.regexes.values()))
        if now_ms < last_ms + settings.regex_refresh_min_interval_ms:
            return False
        is_outdated = group.regexes_checked_version != self._state.topics.version
        return is_outdated or now_ms >= last_ms + settings.regex_refresh_interval_ms

    def refresh(self, draft: Draft, may_describe: MayDescribe, now_ms: int) -> bool:
        """Match all expressions again; True if any matches other topics than before.

        `may_describe` is of the member whose heartbeat is the occasion, as in Kafka: the members of a group share the
        topics of an expression.
        """
        changed = False
        for regex, resolved in list(draft.group.regexes.items()):
            try:
                topics = frozenset(filter(may_describe, self._match(regex)))
            except KafkaError:
                # Another coordinator accepted this expression: keep the topics it matched.
                continue
            if topics != resolved.topics:
                self._write(draft, regex, topics, now_ms)
                changed = True
        return changed

    def _write(self, draft: Draft, regex: str, topics: frozenset[str], now_ms: int) -> None:
        draft.emit(regex_record(draft.group.group_id, regex, topics, self._state.topics.version, now_ms))

    def _match(self, regex: str) -> frozenset[str]:
        version = self._state.topics.version
        known = self._matched.get(regex)
        if known is None or known[0] != version:
            compiled = self._compile(regex)
            try:
                topics = frozenset(name for name in self._state.topics.topic_names() if compiled.matches(name))
            except InvalidRegex as error:
                raise _refusal(regex, error) from None
            known = self._matched[regex] = (version, topics)
        return known[1]

    def _compile(self, regex: str) -> Regex:
        compiled = self._compiled.get(regex)
        if compiled is None:
            try:
                compiled = Regex(regex)
            except InvalidRegex as error:
                raise _refusal(regex, error) from None
            if len(self._compiled) >= _REMEMBERED:
                self._compiled.clear()
                self._matched.clear()
            self._compiled[regex] = compiled
        return compiled


def _refusal(regex: str, error: InvalidRegex) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.",
    )
