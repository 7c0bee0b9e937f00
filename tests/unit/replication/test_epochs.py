from __future__ import annotations

import pytest

from penstock.replication.epochs import LeaderEpochs


def entries(epochs: LeaderEpochs) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in epochs.entries]


def test_the_epoch_being_written_keeps_its_start() -> None:
    epochs = LeaderEpochs()
    assert epochs.latest == -1
    epochs.assign(1, 0)
    changes = epochs.changes
    epochs.assign(1, 5)
    assert epochs.changes == changes
    epochs.assign(3, 10)
    assert epochs.changes == changes + 1
    assert entries(epochs) == [(1, 0), (3, 10)]
    assert epochs.latest == 3


def test_a_newer_assignment_removes_what_contradicts_it() -> None:
    epochs = LeaderEpochs([(1, 0), (2, 10), (5, 20)])
    epochs.assign(3, 15)  # epoch 5 cannot be there yet
    assert entries(epochs) == [(1, 0), (2, 10), (3, 15)]
    epochs.assign(6, 10)  # nothing was written in 2 and 3 after all
    assert entries(epochs) == [(1, 0), (6, 10)]
    epochs.assign(6, 4)
    assert entries(epochs) == [(1, 0), (6, 4)]


def test_negative_numbers_are_refused() -> None:
    for bad in ((-1, 0), (0, -1)):
        with pytest.raises(ValueError, match="leader epoch"):
            LeaderEpochs().assign(*bad)


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 5)),  # older than anything known: what is left begins at 5
        (2, (2, 10)),
        (3, (2, 10)),  # not known itself: the one before it, up to the next
        (4, (4, 30)),
        (6, (6, 100)),  # the latest ends where the log does
        (7, (-1, -1)),  # not known yet
    ],
)
def test_where_an_epoch_ends(epoch: int, answer: tuple[int, int]) -> None:
    assert LeaderEpochs([(2, 5), (4, 10), (6, 30)]).end_offset_for(epoch, 100) == answer


def test_nothing_is_known_of_an_empty_log() -> None:
    assert LeaderEpochs().end_offset_for(0, 0) == (-1, -1)
    assert LeaderEpochs().epoch_for_offset(0) == -1


def test_the_epoch_of_an_offset() -> None:
    epochs = LeaderEpochs([(2, 5), (4, 10)])
    assert [epochs.epoch_for_offset(offset) for offset in (4, 5, 9, 10, 99)] == [-1, 2, 2, 4, 4]


def test_truncation() -> None:
    epochs = LeaderEpochs([(2, 5), (4, 10), (6, 30)])
    changes = epochs.changes
    epochs.truncate_from_end(31)
    epochs.truncate_from_start(5)
    assert epochs.changes == changes
    epochs.truncate_from_end(30)
    assert epochs.changes == changes + 1
    assert epochs.latest == 4
    assert entries(epochs) == [(2, 5), (4, 10)]
    epochs.truncate_from_start(7)
    assert epochs.changes == changes + 2
    assert entries(epochs) == [(2, 7), (4, 10)]
    epochs.truncate_from_start(10)
    assert entries(epochs) == [(4, 10)]
    epochs.truncate_from_start(20)
    assert entries(epochs) == [(4, 20)]
    epochs.clear()
    assert epochs.latest == -1
