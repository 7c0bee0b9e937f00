"""What sabotage tests share: a law that is broken on purpose must be seen to be broken."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import pytest


def assert_caught(law: str, seeds: Iterable[int], violation_of: Callable[[int], str | None]) -> None:
    """The run of one of the seeds violates the law, or one of the laws, named in `law`."""
    others: list[str] = []
    for seed in seeds:
        violation = violation_of(seed)
        if violation is not None and re.split(r"[:\s]", violation, maxsplit=1)[0] in law.split():
            return
        if violation is not None:
            others.append(f"seed {seed}: {violation}")
    pytest.fail(f"{law} saw nothing; others: {others}")
