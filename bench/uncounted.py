"""`python -m bench.uncounted FILE`: `penstock server FILE`, without the statements that count on the way of a request.

For `bench.metrics`, to tell what they cost. Each statement named here has to be found in the function it is removed
from: what is measured cannot be something else one day.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable
from typing import Any

from penstock.broker.net.connection import Connection
from penstock.broker.net.server import Listener
from penstock.broker.partitions.replica import Replica

COUNTING: dict[tuple[type, str], set[str]] = {
    (Connection, "buffer_updated"): {"self.since = now_ns()"},
    (Connection, "answer_plainly"): {"self.listener.plain_requests += requests"},
    (Connection, "send"): {"latency = self.latency", "if latency is not None:"},
    (Listener, "flush_soon"): {"self._turn_since = connection.since"},
    (Listener, "_flush"): {"if self.plain_requests:"},
    (Replica, "append"): {"self.bytes_in += size"},
    (Replica, "append_run"): {"self.bytes_in += size"},
}


class _Remover(ast.NodeTransformer):
    """Takes out statements whose first line is one of `lines`."""

    def __init__(self, lines: set[str]) -> None:
        self.left = set(lines)

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.stmt) and (line := ast.unparse(node).splitlines()[0]) in self.left:
            self.left.remove(line)
            return None
        return self.generic_visit(node)


def without(function: Callable[..., Any], lines: set[str]) -> Callable[..., Any]:
    tree = ast.parse("from __future__ import annotations\n" + textwrap.dedent(inspect.getsource(function)))
    remover = _Remover(lines)
    remover.visit(tree)
    if remover.left:
        raise LookupError(f"{function.__qualname__} does not count with {sorted(remover.left)}")
    names: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(tree), f"<{function.__qualname__}>", "exec"), function.__globals__, names)
    changed: Callable[..., Any] = names[function.__name__]
    return changed


def stop_counting() -> None:
    for (owner, name), lines in COUNTING.items():
        setattr(owner, name, without(getattr(owner, name), lines))


if __name__ == "__main__":
    from penstock.cli.main import main

    stop_counting()
    sys.argv[:1] = ["penstock", "server"]
    main()
