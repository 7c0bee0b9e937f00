"""What all tests share: one real broker a test process, and names that are used once."""

from __future__ import annotations

import functools
import gc
import io
import itertools
import logging
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import settings

import bytecode
from penstock.io import threads
from property_examples import TRACED, examples
from traced import runs_traced_only

if TYPE_CHECKING:
    from penstock.testing.nodes import RunningNode

# A change is judged by the same examples as the one before it; `make soak` looks for new ones. No example has a
# deadline: how long it takes depends on what else the machine does.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("exploring", max_examples=1000, deadline=None)
settings.register_profile(TRACED, max_examples=examples(100), derandomize=True, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# No worker thread touches what the event loop owns, here and in the nodes that tests start.
os.environ.setdefault(threads.ENVIRONMENT_VARIABLE, "1")
threads.enforce()

# The JVMs of tests live for minutes at most. Half of their time would go to the optimising compiler, whose code hardly
# runs before they end; and Spark starts one JVM only to print the command line of the next.
QUICK_JAVA = "-XX:TieredStopAtLevel=1"
os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_JAVA)
os.environ.setdefault("SPARK_LAUNCHER_OPTS", f"{QUICK_JAVA} -XX:+UseSerialGC")
os.environ.setdefault("MAVEN_OPTS", QUICK_JAVA)

# A session would make an archive of Java's classes in the background, which takes a core for a minute.
os.environ.setdefault("PENSTOCK_CLASS_ARCHIVE", "false")

# Every node that a test starts would compile all of Penstock anew, which takes longer than the rest of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


# Folders whose tests share something that is slow to start: Spark, a cluster. One process runs each of them. The one
# that takes longest comes first.
TOGETHER = ("tests/spark/", "tests/console/", "tests/registry/", "tests/metrics/", "tests/doctor/")


@functools.cache
def shares_fixtures(path: Path) -> bool:
    """Whether the tests of a module share what it starts for them, and what each process that runs one would start."""
    return 'scope="module"' in path.read_text()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    runs_everything = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if runs_everything and not bytecode.is_compiled():
        bytecode.compile_in_parallel()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """As `--dist loadgroup`, whose groups pytest 9.2 does not let it name."""
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False  # groups of many tests need not take long; `_place` says which come first

    class Together(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            if folder := next((folder for folder in TOGETHER if nodeid.startswith(folder)), None):
                return folder
            path = nodeid.split("::")[0]
            return path if shares_fixtures(config.rootpath / path) else nodeid

        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            """Forgets what is done. The original looks at all of it again whenever one of thousands of tests ends."""
            nodeid = self.registered_collections[node][item_index]
            scopes, scope = self.assigned_work[node], self._split_scope(nodeid)
            del scopes[scope][nodeid]
            if not scopes[scope]:
                del scopes[scope]
            self._reschedule(node)

        def _assign_work_unit(self, node: Any) -> None:
            """Until the node has enough: it runs its last test only when it knows that no other one follows. Of few
            tests, none may be left for the last nodes."""
            if self.workqueue:
                super()._assign_work_unit(node)
            self._reschedule(node)

    return Together(config, log)


def pytest_collection() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    """Modules and test cases stay: the collector need not search those 600,000 objects again and again."""
    gc.freeze()
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="scenarios in text files: accept what happens now")
    parser.addoption("--untraced", action="store_true", help="without the tests that .ci/coverage runs")


def _place(path: Path, root: Path) -> int:
    """What takes long comes first, so that all processes end at about the same time."""
    name = path.relative_to(root).as_posix()
    folder = next((number for number, folder in enumerate(TOGETHER) if name.startswith(folder)), None)
    return folder if folder is not None else len(TOGETHER) + (not shares_fixtures(path))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # that is, a process of xdist's
        items.sort(key=lambda item: _place(item.path, config.rootpath))
    if config.getoption("--untraced"):
        left_out = [item for item in items if runs_traced_only(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not runs_traced_only(item)]


_SECONDS_BY_FOLDER: defaultdict[str, float] = defaultdict(float)
FEW_S = 30


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _SECONDS_BY_FOLDER["/".join(report.nodeid.split("/")[:2])] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Where the time of a long run goes, added up over all its processes."""
    if sum(_SECONDS_BY_FOLDER.values()) < FEW_S:
        return
    terminalreporter.section("seconds by folder")
    for folder, seconds in sorted(_SECONDS_BY_FOLDER.items(), key=lambda row: row[1], reverse=True):
        terminalreporter.write_line(f"{seconds:8.1f}  {folder}")


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite"))


@pytest.fixture(autouse=True)
def log_levels() -> Iterator[None]:
    """Who crashes things on purpose may silence the loggers; the next test hears them again."""
    levels = {name: logging.getLogger(name).level for name in ("penstock", "asyncio")}
    yield
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture(autouse=True)
def loop_owns_state() -> Iterator[None]:
    """A violation fails the test in which it happens, also where the one who broke the law caught the error."""
    yield
    broken = threads.violations.copy()
    threads.violations.clear()
    assert not broken


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A running node that tests share; topics are kept apart by `unique_topic`. Who kills it starts it again."""
    from penstock.testing.nodes import start_node

    with start_node(tmp_path_factory.mktemp("broker") / "node") as node:
        yield node


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Of a cluster, for tests that need no more: any Kafka's, given PENSTOCK_TEST_BOOTSTRAP, else `broker`'s."""
    elsewhere = os.environ.get("PENSTOCK_TEST_BOOTSTRAP")
    return elsewhere or str(request.getfixturevalue("broker").bootstrap)


@pytest.fixture(scope="session")
def unique_topic() -> Callable[[str], str]:
    """`unique_topic("orders")`: a topic name no other test has, nor an earlier run on the same cluster."""
    numbers = itertools.count(1)
    run = os.urandom(4).hex()

    def name(prefix: str = "topic") -> str:
        return f"{prefix}-{run}-{next(numbers)}"

    return name


class CommandResult(NamedTuple):
    status: int
    out: str
    err: str


CommandLine = Callable[..., CommandResult]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """`cli("topics", "list")`: a command of `penstock`, run in this process; `stdin` is what it reads."""
    from penstock.cli.main import run

    def command(*arguments: str, stdin: bytes = b"") -> CommandResult:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        status = run(list(arguments))
        out, err = capsys.readouterr()
        return CommandResult(status, out, err)

    return command
