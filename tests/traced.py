"""The tests from which CI measures coverage, those that run mostly in process. `.ci/coverage` runs them with a tracer.

No test has to run twice for it. `make test ARGS=--untraced` leaves out those that run there, and the two runs are every
test together. Properties run in both, because the traced run tries only a fifth of their examples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

TRACED = (
    *("tests/unit", "tests/properties", "tests/groups", "tests/transactions", "tests/shares", "tests/schemas"),
    *("tests/registry/test_registry_core.py", "tests/registry/test_registry_core_properties.py"),
    *("tests/registry_clients", "tests/security/test_up_secure.py"),
    *(f"tests/simulation/test_{story}_sabotage.py" for story in ("share", "registry", "streams")),
)

# What another test runs, too: the same messages, against the codec of another library.
UNTRACED = ("tests/properties/test_protocol_kio.py",)
# Properties with so few examples that the traced run tries all of them.
ALL_EXAMPLES = ("tests/properties/test_protocol_round_trip.py",)


def runs_traced_only(item: pytest.Item) -> bool:
    """Whether the traced run is all that a test needs. Hypothesis marks what it tries with examples."""
    path = item.nodeid.split("::")[0]
    if path in UNTRACED or not any(path == traced or path.startswith(f"{traced}/") for traced in TRACED):
        return False
    return path in ALL_EXAMPLES or item.get_closest_marker("hypothesis") is None
