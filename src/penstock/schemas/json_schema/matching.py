"""The most pairs that parts of two combinations can form, each part in one pair at most."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from penstock.schemas.steps import MAX_STEPS, TooManySteps


def largest_matching(edges: Sequence[Sequence[int]], right: int) -> int:
    """`edges[i]` are the right sides that the left side `i` may be paired with.

    Along a path that begins and ends with unpaired sides and alternates between pairs and others, one more pair fits;
    when there is no such path, there are as many pairs as there can be."""
    partner: list[int | None] = [None] * right
    visited = 0
    pairs = 0
    for start in range(len(edges)):
        came_from: dict[int, int] = {}  # right side: the left side that it was reached from
        paired_with: dict[int, int] = {}  # left side: the right side that it is paired with
        waiting = deque([start])
        end = None
        while waiting and end is None:
            left = waiting.popleft()
            for other in edges[left]:
                visited += 1
                if visited > MAX_STEPS:
                    raise TooManySteps
                if other in came_from:
                    continue
                came_from[other] = left
                taken_by = partner[other]
                if taken_by is None:
                    end = other
                    break
                paired_with[taken_by] = other
                waiting.append(taken_by)
        if end is None:
            continue
        pairs += 1
        step: int | None = end
        while step is not None:
            left = came_from[step]
            partner[step], step = left, paired_with.get(left)
    return pairs
