"""Where a follower cuts its log, and what it takes for committed."""

from __future__ import annotations

import pytest

from penstock.replication.epochs import LeaderEpochs
from penstock.replication.follower import FollowerState, Truncation


def follower(high_watermark: int = 0) -> FollowerState:
    return FollowerState(leader_id=1, leader_epoch=9, high_watermark=high_watermark)


def test_the_high_watermark_is_the_leaders_as_far_as_the_log_goes() -> None:
    state = follower(3)
    assert state.learned(10, 7)
    assert state.high_watermark == 7
    assert not state.learned(5, 8)  # a new leader does not know yet what is committed
    assert state.high_watermark == 7
    assert state.learned(10, 20)
    state.truncated(8)
    assert state.high_watermark == 8


@pytest.mark.parametrize(
    ("own", "log_end", "leader_says", "expected"),
    [
        # The leader has all of the epoch that the follower has: the follower is merely behind.
        ([(1, 0), (3, 10)], 15, (3, 20), Truncation(15, True)),
        # The leader's epoch 3 ended earlier: what the follower has beyond was never committed.
        ([(1, 0), (3, 10)], 15, (3, 12), Truncation(12, True)),
        # The leader does not know epoch 3; in epoch 2, which the follower has, it went further.
        ([(1, 0), (2, 5), (3, 10)], 15, (2, 12), Truncation(10, True)),
        ([(1, 0), (2, 5), (3, 10)], 15, (2, 8), Truncation(8, True)),
        # KIP-279: neither knows the other's epoch, so they go back step by step.
        ([(1, 0), (4, 10)], 15, (3, 12), Truncation(10, False)),
        # The follower begins later than the leader's epoch ended.
        ([(4, 10)], 15, (3, 8), Truncation(8, True)),
        # An epoch that a former leader began and never wrote in.
        ([(1, 0), (4, 15)], 15, (1, 15), Truncation(15, True)),
    ],
)
def test_the_log_is_cut_where_histories_part(
    own: list[tuple[int, int]], log_end: int, leader_says: tuple[int, int], expected: Truncation
) -> None:
    assert follower().truncation(leader_says, LeaderEpochs(own), log_end) == expected


def test_a_leader_that_knows_no_epoch_so_old_leaves_what_is_committed() -> None:
    assert follower(7).truncation((-1, -1), LeaderEpochs([(1, 0)]), 15) == Truncation(7, True)


def test_a_leader_without_epochs_is_followed_by_its_offset() -> None:
    assert follower(7).truncation((-1, 12), LeaderEpochs([(1, 0)]), 15) == Truncation(12, True)
