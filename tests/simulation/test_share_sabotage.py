"""The laws of the story about shares catch share groups that are broken on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.broker.shares import persister
from penstock.coordinator.decision import Decision
from penstock.model.errors import ErrorCode
from penstock.share_state import shard as share_shard
from penstock.share_state.state import ShareState
from penstock.shares.acquiring import Acquiring
from penstock.shares.in_flight import InFlight, Run
from penstock.shares.share_partition import SharePartition, _Changes
from penstock.shares.states import AcknowledgeType, Outcome, RecordState
from penstock.simulator.stories.share_story import play
from penstock.simulator.story import quietly
from simulation.sabotage import assert_caught

Patch = pytest.MonkeyPatch
SEEDS = range(12)


def acknowledgements_are_confirmed_before_they_are_persisted(patch: Patch) -> None:
    patch.setattr(persister, "for_client", lambda code: ErrorCode.NONE)


def former_leaders_are_not_fenced(patch: Patch) -> None:
    patch.setattr(ShareState, "fencing_epoch", -1)


def records_are_delivered_while_an_acknowledgement_is_persisted(patch: Patch) -> None:
    patch.setattr(
        Run, "can_be_acquired", property(lambda run: run.state in (RecordState.AVAILABLE, RecordState.ACQUIRED))
    )


def locks_end_too_early(patch: Patch) -> None:
    expire = SharePartition.expire
    patch.setattr(SharePartition, "expire", lambda self, now_ms: expire(self, now_ms + 500))


def a_new_leader_forgets_delivery_counts(patch: Patch) -> None:
    add = InFlight.add

    def forgetful(self: InFlight, run: Run) -> None:
        if not run.member and run.state is RecordState.AVAILABLE:
            run.delivery_count = 0
        add(self, run)

    patch.setattr(InFlight, "add", forgetful)


def deliveries_are_not_counted(patch: Patch) -> None:
    acquire = Acquiring._acquire

    def uncounted(self: Acquiring, run: Run, *, is_continued: bool) -> None:
        run.delivery_count -= run.delivery_count > 0
        acquire(self, run, is_continued=is_continued)

    patch.setattr(Acquiring, "_acquire", uncounted)


def records_are_delivered_for_ever(patch: Patch) -> None:
    acknowledge = _Changes.acknowledge

    def tireless(self: _Changes, run: Run, kind: AcknowledgeType, released: Outcome = Outcome.RELEASED) -> None:
        self._limit = 1 << 30
        acknowledge(self, run, kind, released)

    patch.setattr(_Changes, "acknowledge", tireless)


def the_start_offset_jumps_over_gaps(patch: Patch) -> None:
    def advance(self: InFlight) -> bool:
        settled = 0
        for run in self._runs:
            if not run.is_settled:
                break
            self.start_offset = run.last + 1
            self.final_count -= run.size
            settled += 1
        del self._runs[:settled]
        return settled > 0

    patch.setattr(InFlight, "advance", advance)


def an_unsettled_record_is_passed(patch: Patch) -> None:
    patch.setattr(
        Run,
        "is_settled",
        property(lambda run: run.transition is None and run.state is not RecordState.ACQUIRED),
    )


def locks_never_end(patch: Patch) -> None:
    patch.setattr(SharePartition, "expire", lambda self, now_ms: None)


def released_records_are_not_found_again(patch: Patch) -> None:
    patch.setattr(InFlight, "next_fetch_offset", lambda self: self.end_offset + 1)


def the_coordinator_keeps_writes_in_memory(patch: Patch) -> None:
    write = share_shard.ShareStateShard._write

    def unrecorded(
        self: share_shard.ShareStateShard, key: Any, before: Any, after: Any, changed: Any, now_ms: int, out: Decision
    ) -> None:
        write(self, key, before, after, changed, now_ms, out)
        for record in out.records:
            self.replay(record.key, record.value, 0)
        out.records.clear()

    patch.setattr(share_shard.ShareStateShard, "_write", unrecorded)


@pytest.mark.parametrize(
    ("sabotage", "law"),
    [
        (acknowledgements_are_confirmed_before_they_are_persisted, "AcknowledgedIsFinal"),
        (former_leaders_are_not_fenced, "AcknowledgedIsFinal"),
        (records_are_delivered_while_an_acknowledgement_is_persisted, "OneOwner"),
        (locks_end_too_early, "OneOwner"),
        (a_new_leader_forgets_delivery_counts, "CountsNeverFall"),
        (deliveries_are_not_counted, "CountsNeverFall"),
        (records_are_delivered_for_ever, "DeliveryLimit"),
        (the_start_offset_jumps_over_gaps, "NothingSkipped"),
        (an_unsettled_record_is_passed, "NothingSkipped"),
        (locks_never_end, "AllSettledInTheEnd"),
        (released_records_are_not_found_again, "AllSettledInTheEnd"),
        (the_coordinator_keeps_writes_in_memory, "StateEqualsLog"),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_a_law_catches(sabotage: Callable[[Patch], None], law: str, monkeypatch: Patch) -> None:
    quietly()
    sabotage(monkeypatch)
    assert_caught(law, SEEDS, lambda seed: play(seed).violation)
