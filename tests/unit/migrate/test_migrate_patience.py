"""Nodes die while a command is at work: it goes on when they are back, and gives up when they are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.client.errors import TimedOut
from penstock.migrate import moving
from penstock.migrate.moving import Move, Progress
from penstock.migrate.observe import finds_none_of
from penstock.migrate.patience import patiently
from penstock.migrate.plan import CannotMove
from penstock.migrate.state import Quorum, Voter
from penstock.migrate.voters import Change, VoterStep, after
from penstock.migrate.voting import change_voters
from penstock.model.errors import ErrorCode, KafkaError

GONE = CannotMove("broker 11 is fenced: it takes no replicas")
BUSY = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "a change is under way")
FORBIDDEN = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")
OLD, NEW = (1, 2, 3), (11, 12, 13)


class Scripted(Move):
    """Its rounds are given: an error, or that there is something left, or that all is done."""

    def __init__(self, *rounds: Exception | bool) -> None:
        super().__init__(cast(Any, None), cast(Any, None), [1], [11])
        self._rounds = iter(rounds)

    def _round(self) -> Progress:
        outcome = next(self._rounds)
        if isinstance(outcome, Exception):
            raise outcome
        return Progress(() if outcome else cast(Any, [_Open()]))


class _Open:
    phase = None


def test_a_move_waits_for_a_broker_that_died() -> None:
    reports = list(Scripted(False, GONE, TimedOut("no answer"), False, GONE, True).run(pause=lambda _: None))
    assert [report.done for report in reports] == [False, False, True]


def test_a_topic_that_is_deleted_does_not_end_a_move() -> None:
    gone = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 'a'")
    assert [report.done for report in Scripted(gone, False, gone, True).run(pause=lambda _: None)] == [False, True]


@pytest.mark.parametrize("rounds", [[GONE], [False, FORBIDDEN]], ids=["it never was there", "refused"])
def test_a_move_ends_at_what_does_not_pass(rounds: list[Exception | bool]) -> None:
    with pytest.raises((CannotMove, KafkaError)):
        list(Scripted(*rounds).run(pause=lambda _: None))


def test_a_move_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "PATIENCE_S", -1.0)
    with pytest.raises(CannotMove):
        list(Scripted(False, GONE).run(pause=lambda _: None))


class Cluster:
    """A quorum that does what it is told, and fails before or after it, as scripted."""

    def __init__(self, failures: list[Exception | None]) -> None:
        self.quorum = Quorum(1, 0, *(tuple(Voter(each, b"", {}, 0) for each in ids) for ids in (OLD, NEW)))
        self._failures = iter(failures)

    def observe(self) -> Quorum:
        return self.quorum

    def act(self, step: VoterStep, quorum: Quorum) -> None:
        failure = next(self._failures, None)
        # A time-out of the client says nothing: here the change was made.
        if failure is None or isinstance(failure, TimedOut):
            self.quorum = after(quorum, step)
        if failure is not None:
            raise failure


def changes(cluster: Cluster, observe: Callable[[], Quorum] | None = None) -> Iterator[VoterStep]:
    return change_voters(observe or cluster.observe, cluster.act, OLD, NEW, pause=lambda _: None)


@pytest.mark.parametrize(
    "failures",
    [[], [BUSY, BUSY], [TimedOut("no answer")], [KafkaError(ErrorCode.NOT_CONTROLLER, "")], [None, BUSY, None, BUSY]],
)
def test_voters_change_though_controllers_die(failures: list[Exception | None]) -> None:
    cluster = Cluster(failures)
    steps = list(changes(cluster))
    assert {voter.node_id for voter in cluster.quorum.voters} == set(NEW)
    assert {step.change for step in steps} == {Change.ADD, Change.REMOVE}


def test_a_controller_that_dies_on_the_way_is_waited_for() -> None:
    cluster = Cluster([])
    away = iter([False, True, True, False])

    def observe() -> Quorum:
        if next(away, False):
            raise CannotMove("controller 12 does not follow the quorum: start it first")
        return cluster.quorum

    assert len(list(changes(cluster, observe))) == len(OLD) + len(NEW)


def test_what_does_not_pass_ends_the_change() -> None:
    with pytest.raises(KafkaError, match="no"):
        list(changes(Cluster([FORBIDDEN])))
    with pytest.raises(CannotMove, match="13"):
        list(change_voters(Cluster([]).observe, Cluster([]).act, OLD, [113], pause=lambda _: None))


def test_a_broker_that_does_not_answer_is_asked_again() -> None:
    answers = iter([KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "broker 11 is not alive"), TimedOut("no answer"), None])

    def ask() -> str:
        failure = next(answers)
        if failure is not None:
            raise failure
        return "its settings"

    assert patiently(ask, pause=lambda _: None) == "its settings"


@pytest.mark.parametrize(("failure", "patience_s"), [(FORBIDDEN, 60.0), (BUSY, -1.0)], ids=["refused", "for too long"])
def test_it_is_not_asked_again_for_ever(failure: KafkaError, patience_s: float) -> None:
    def ask() -> None:
        raise failure

    with pytest.raises(KafkaError):
        patiently(ask, patience_s=patience_s, pause=lambda _: None)


def test_a_registered_broker_that_is_dead_is_named() -> None:
    """Nobody can say whether it would find the new controllers: waiting for it does not help if it stays dead."""

    def describe(resource: object, name: str) -> None:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {name} is not alive")

    admin = cast(Any, SimpleNamespace(configs=SimpleNamespace(describe=describe)))
    with pytest.raises(KafkaError, match=r"broker 2 is registered, but does not answer.*penstock migrate retire 2"):
        patiently(lambda: finds_none_of(admin, [2], [("alpha", 9093)]), patience_s=-1.0)
