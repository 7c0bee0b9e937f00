"""The laws of the story about the schema registry catch registries that are broken on purpose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from penstock.registry.core import records, registration
from penstock.registry.core.names import context_of
from penstock.registry.core.records import SchemasRecord
from penstock.registry.core.state import SchemaVersion, State
from penstock.simulator.stories.registry_story import play
from penstock.simulator.stories.registry_world import NodeTwin, Process, Request, SchemasTopic, Work
from penstock.simulator.story import quietly
from simulation.sabotage import assert_caught

Patch = pytest.MonkeyPatch
SEEDS = range(20)


def the_highest_ids_are_not_noted(patch: Patch) -> None:
    def empty(_highest: Mapping[str, int]) -> SchemasRecord:
        return SchemasRecord({"keytype": records.NOOP, "magic": 0}, {})

    patch.setattr(records, "noop", empty)


def ids_are_counted(patch: Patch) -> None:
    def counted(state: State, new: SchemaVersion, _candidate: Any) -> int:
        context = context_of(new.subject)
        known = state.with_guid(context, new.guid)
        return known[0].id if known else len(state.contexts[context].by_id) + 1 if context in state.contexts else 1

    patch.setattr(registration, "_id_for", counted)


def every_subject_gets_ids_of_its_own(patch: Patch) -> None:
    def new_id(state: State, new: SchemaVersion, _candidate: Any) -> int:
        context = context_of(new.subject)
        return state.contexts[context].highest_id + 1 if context in state.contexts else 1

    patch.setattr(registration, "_id_for", new_id)


def soft_deletions_are_permanent(patch: Patch) -> None:
    def delete(self: State, subject: str, last: object) -> None:
        assert isinstance(last, int)
        for each in self.versions(subject):
            if each.version <= last:
                self._remove(subject, each.version)

    patch.setattr(State, "_delete_subject", delete)


def writes_are_acknowledged_before_they_are_written(patch: Patch) -> None:
    write = NodeTwin._write

    def hasty(self: NodeTwin, process: Process, request: Request) -> Work:
        for _ in write(self, process, request):
            if request.decision is not None:
                request.answer, request.at = request.decision.answer, process.position
            yield

    patch.setattr(NodeTwin, "_write", hasty)


def former_writers_are_not_fenced(patch: Patch) -> None:
    patch.setattr(SchemasTopic, "is_refused", lambda self, append: False)


def a_new_writer_does_not_fence(patch: Patch) -> None:
    """It trusts the election, and writes no NOOP."""

    def take_over(self: NodeTwin, process: Process) -> Work:
        process.epoch = self.topic.take_epoch()
        yield

    patch.setattr(NodeTwin, "take_over", take_over)


def a_new_writer_does_not_read_first(patch: Patch) -> None:
    def take_over(self: NodeTwin, process: Process) -> Work:
        epoch = self.topic.take_epoch()
        append = self.topic.send(epoch, [records.noop(process.state.highest_ids())], None)
        yield from self.answered(append)
        process.epoch = epoch if append.is_done and not append.is_fenced else None

    patch.setattr(NodeTwin, "take_over", take_over)


def a_writer_goes_on_after_a_write_that_failed(patch: Patch) -> None:
    write = NodeTwin._write

    def stubborn(self: NodeTwin, process: Process, request: Request) -> Work:
        epoch = process.epoch
        yield from write(self, process, request)
        process.epoch = epoch

    patch.setattr(NodeTwin, "_write", stubborn)


def a_decision_changes_the_state(patch: Patch) -> None:
    write = NodeTwin._write

    def eager(self: NodeTwin, process: Process, request: Request) -> Work:
        decide = request.decide

        def applied(state: State, parser: Any) -> Any:
            made = decide(state, parser)
            for record in made.records:
                state.replay(record)
            return made

        request.decide = applied
        yield from write(self, process, request)

    patch.setattr(NodeTwin, "_write", eager)


def a_node_stops_reading_once_it_has_started(patch: Patch) -> None:
    follow = NodeTwin.follow

    def deaf(self: NodeTwin, process: Process, count: int) -> None:
        if process.is_loaded and not process.is_mine:
            process.position = self.topic.end
        else:
            follow(self, process, count)

    patch.setattr(NodeTwin, "follow", deaf)


def replay_relies_on_records_that_compaction_removes(patch: Patch) -> None:
    replay = State._replay_schema

    def in_order(self: State, subject: str | None, number: object, value: Mapping[str, Any] | None) -> None:
        assert isinstance(subject, str)
        assert isinstance(number, int)
        highest = self.subjects[subject].highest if subject in self.subjects else 0
        if value is None or number <= highest + 1:
            replay(self, subject, number, value)

    patch.setattr(State, "_replay_schema", in_order)


def a_writer_that_failed_is_not_replaced(patch: Patch) -> None:
    patch.setattr(NodeTwin, "take_over", lambda self, process: iter(()))


@pytest.mark.parametrize(
    ("sabotage", "law"),
    [
        (the_highest_ids_are_not_noted, "CompactionChangesNothing"),
        (ids_are_counted, "OneSchemaAnId"),
        (every_subject_gets_ids_of_its_own, "OneIdASchema"),
        (soft_deletions_are_permanent, "AcknowledgedStays"),
        (writes_are_acknowledged_before_they_are_written, "AcknowledgedStays"),
        (former_writers_are_not_fenced, "FencedWriterWritesNothing"),
        (a_new_writer_does_not_fence, "DecidedOnEverything"),
        (a_new_writer_does_not_read_first, "DecidedOnEverything"),
        (a_writer_goes_on_after_a_write_that_failed, "DecidedOnEverything"),
        (a_decision_changes_the_state, "NodesAgree"),
        (a_node_stops_reading_once_it_has_started, "NodesAgree"),
        (replay_relies_on_records_that_compaction_removes, "CompactionChangesNothing"),
        (a_writer_that_failed_is_not_replaced, "AnsweredInTheEnd"),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_a_law_catches(sabotage: Callable[[Patch], None], law: str, monkeypatch: Patch) -> None:
    quietly()
    sabotage(monkeypatch)
    assert_caught(law, SEEDS, lambda seed: play(seed).violation)
