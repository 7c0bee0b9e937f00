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
    *("tests/registry_clients", "tests/security/test_up_secure.py", "tests/pipelines"),
    *("tests/demo/test_demo_ledger.py", "tests/demo/test_demo_parts.py", "tests/doctor/test_diagnosis.py"),
    *(f"tests/console/test_{what}.py" for what in ("boards", "events", "filters", "flows", "history", "letters")),
    *(f"tests/console/test_{what}.py" for what in ("uploads", "views")),
    *(f"tests/simulation/test_{story}_sabotage.py" for story in ("share", "registry", "streams")),
)

# The same messages as in another test, against the codec of another library; a server that starts for half a minute.
UNTRACED = ("tests/properties/test_protocol_kio.py", "tests/pipelines/test_sinks_elasticsearch.py")
# Properties with so few examples that the traced run tries all of them.
ALL_EXAMPLES = ("tests/properties/test_protocol_round_trip.py",)


def runs_traced_only(item: pytest.Item) -> bool:
    """Whether the traced run is all that a test needs. Hypothesis marks what it tries with examples."""
    path = item.nodeid.split("::")[0]
    if path in UNTRACED or not any(path == traced or path.startswith(f"{traced}/") for traced in TRACED):
        return False
    return path in ALL_EXAMPLES or item.get_closest_marker("hypothesis") is None
