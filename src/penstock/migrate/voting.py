"""Carries out the change of voters that `voters` plans, step by step.

Each round observes the quorum and takes the next step, so a change whose answer was lost is seen in the next round. A
controller may die or lose the leadership meanwhile: then the round is repeated for a while, before the command gives up
and leaves a quorum that works with the voters it has. Run again, it continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from typing import Final

from penstock.client.errors import TimedOut, Unreachable
from penstock.migrate.patience import PATIENCE_S, POLL_S, may_pass
from penstock.migrate.plan import CannotMove
from penstock.migrate.state import Quorum
from penstock.migrate.voters import Change, VoterStep, next_step
from penstock.model.errors import ErrorCode, KafkaError

# What an attempt whose answer was lost has done already.
_DONE: Final = frozenset({ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND})


def change_voters(
    observe: Callable[[], Quorum],
    act: Callable[[VoterStep, Quorum], None],
    leaving: Collection[int],
    arriving: Collection[int],
    *,
    patience_s: float = PATIENCE_S,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[VoterStep]:
    """Take the steps; each is returned when it is done. `observe` and `act` ask and change the cluster."""
    failing_since: float | None = None
    begun = False
    while True:
        try:
            quorum = observe()
            step = next_step(quorum, leaving, arriving)
            if step is None:
                return
            begun = True
            is_taken = step.change is not Change.WAIT and _is_taken(act, step, quorum)
        except (Unreachable, TimedOut, KafkaError, CannotMove) as error:
            # A controller that was there, and is not now, may come back.
            is_passing = begun if isinstance(error, CannotMove) else may_pass(error)
            failing_since = failing_since or time.monotonic()
            if not is_passing or time.monotonic() - failing_since > patience_s:
                raise
            pause(POLL_S)
            continue
        failing_since = None
        if is_taken:
            yield step
        else:
            pause(POLL_S)


def _is_taken(act: Callable[[VoterStep, Quorum], None], step: VoterStep, quorum: Quorum) -> bool:
    try:
        act(step, quorum)
    except KafkaError as error:
        if error.code not in _DONE:
            raise
    return True
