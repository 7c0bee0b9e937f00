"""The demo as users start it. However it ends, it leaves no process and no file."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.demo.cleanup import Cleanup
from penstock.demo.console import DemoConsole, NoConsole
from penstock.demo.workload import PIPELINES, pipeline_file
from waiting import wait_until

DEMO = [sys.executable, "-m", "penstock", "demo"]
WAIT_S = 150.0


def processes_of(directory: Path) -> list[str]:
    """Those that have it on their command line, or as their place for temporary files."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes() + b"\0" + (entry / "environ").read_bytes()
                if str(directory).encode() in words and (entry / "cmdline").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found


@pytest.fixture
def temporary(tmp_path: Path) -> Iterator[Path]:
    """Where the demo keeps its files; empty afterwards, and no process uses it."""
    yield tmp_path
    wait_until(lambda: not processes_of(tmp_path), lambda: f"processes end: {processes_of(tmp_path)}", WAIT_S)
    assert list(tmp_path.iterdir()) == []


@contextlib.contextmanager
def started(temporary: Path, *arguments: str, stdout: int = subprocess.PIPE) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*DEMO, *arguments],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        try:
            yield demo
        finally:
            demo.terminate()  # where a test has failed


def judged(demo: subprocess.Popen[str], seconds: float) -> dict[str, object]:
    out, err = demo.communicate(timeout=seconds)
    assert demo.returncode == 0, err
    result: dict[str, object] = json.loads(out)
    return result


@pytest.mark.timeout(600)
def test_headless_without_spark(temporary: Path) -> None:
    with started(temporary, "--headless", "--no-spark", "--duration", "1", "--json") as demo:
        result = judged(demo, 500)
    assert result["failures"] == []
    assert result["acknowledged"]
    assert result["outputs"] == {
        "topics": {"arrived": result["acknowledged"], "missing": 0, "doubled": 0, "dead_letters": 0}
    }
    assert (result["brokers_killed"], result["poison"], result["replayed"]) == (1, 5, 5)


@pytest.mark.timeout(600)
def test_the_console_opens_beside_the_demo(temporary: Path) -> None:
    """At an address that is printed, also if others have the usual port; it ends with the demo."""
    pytest.importorskip("uvicorn", reason="the extra `console` is not installed")
    with contextlib.ExitStack() as stack:
        taken = stack.enter_context(socket.socket())
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # then it is taken already
            taken.bind(("127.0.0.1", 8080))
            taken.listen()
        demo = stack.enter_context(started(temporary, "--headless", "--no-spark", "--duration", "600"))
        assert demo.stdout is not None
        line = next(line for line in demo.stdout if "web console" in line)
        address = line.split()[-1]
        assert address.startswith("http://127.0.0.1:80")
        assert ":8080/" not in address

        def page() -> str:
            with urllib.request.urlopen(address, timeout=60) as answer:
                return str(answer.read().decode())

        wait_until(lambda: 'class="thing' in page(), "the map shows trucks", WAIT_S)
        demo.send_signal(signal.SIGTERM)
        demo.communicate(timeout=WAIT_S)


def test_a_demo_goes_on_without_a_console(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("penstock.demo.console.find_spec", lambda name: None)
    cleanup = Cleanup(str(tmp_path / "files"))
    console = DemoConsole(str(tmp_path / "files"), "127.0.0.1:1", cleanup)
    with pytest.raises(NoConsole, match=r"pip install 'penstock\[console\]'"):
        console.start(lambda: False)
    monkeypatch.setattr("penstock.demo.console.find_spec", lambda name: name)
    monkeypatch.setattr("penstock.demo.console.console_port", lambda host, taken: None)
    with pytest.raises(NoConsole, match="no free port"):
        console.start(lambda: False)
    console.stop()
    cleanup.close()


def test_a_demo_whose_output_is_closed_fails(temporary: Path) -> None:
    """As in `penstock demo --headless | head -1`, with a `head` that exits before the first line."""
    reading, writing = os.pipe()
    os.close(reading)
    with started(temporary, "--headless", "--no-spark", "--duration", "600", stdout=writing) as demo:
        os.close(writing)
        _, err = demo.communicate(timeout=WAIT_S)
    assert demo.returncode == 1
    assert err == "penstock: the demo's output was closed; the demo has ended and checked nothing\n"


def test_files_are_removed_after_the_last_process_has_ended(tmp_path: Path) -> None:
    """Also after one that the demo started just before it was killed, and that nobody knows."""
    directory = tmp_path / "files"
    cleanup = Cleanup(str(directory))
    program = "import os, sys, time; time.sleep(2); os.makedirs(sys.argv[1])"
    late = subprocess.Popen([sys.executable, "-c", program, str(directory)], pass_fds=(cleanup.alive_fd,))
    cleanup.close()
    assert late.wait() == 0
    assert not directory.exists()


@pytest.mark.timeout(600)
def test_nothing_is_left_of_a_demo_that_was_killed(temporary: Path) -> None:
    with started(temporary, "--headless", "--no-spark", "--duration", "600") as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "trucks and shop write" in line:
                break
        assert processes_of(temporary)
        demo.send_signal(signal.SIGKILL)
    wait_until(lambda: not processes_of(temporary), "its processes end", WAIT_S)
    wait_until(lambda: not list(temporary.iterdir()), "its files are taken away", WAIT_S)


def test_a_display_needs_a_terminal(temporary: Path) -> None:
    with started(temporary) as demo:
        _, err = demo.communicate(timeout=60)
    assert demo.returncode == 1
    assert err == "penstock: the display needs a terminal; without one, add --headless\n"


class Terminal:
    """A terminal of tmux, which only the test reads."""

    def __init__(self, socket: Path, command: str) -> None:
        self._tmux = ["tmux", "-S", str(socket), "-f", "/dev/null"]
        self._run("new-session", "-d", "-x", "140", "-y", "50", "-s", "demo", f"{command}; echo status=$?; read _")

    def text(self) -> str:
        return self._run("capture-pane", "-p", "-t", "demo")

    def press(self, key: str) -> None:
        self._run("send-keys", "-t", "demo", key)

    def shows(self, text: str, seconds: float = WAIT_S) -> None:
        wait_until(lambda: text in self.text(), lambda: f"{text!r} in\n{self.text()}", seconds)

    def close(self) -> None:
        """As if its window were closed: every process in it gets SIGHUP."""
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)

    def _run(self, *words: str) -> str:
        return subprocess.run([*self._tmux, *words], check=True, capture_output=True, text=True).stdout


@contextlib.contextmanager
def terminal(temporary: Path, tmp_path_factory: pytest.TempPathFactory, *arguments: str) -> Iterator[Terminal]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed, which this test needs as a terminal")
    # The size is the terminal's, whatever the environment of the tests says of theirs.
    command = shlex.join(["env", "-u", "COLUMNS", "-u", "LINES", f"TMPDIR={temporary}", *DEMO, *arguments])
    opened = Terminal(tmp_path_factory.mktemp("tmux") / "socket", command)
    try:
        yield opened
    finally:
        opened.close()


def survive(demo: Terminal, seconds: float) -> None:
    """Kill a broker, bring it back, poison, replay, quit."""
    demo.press("k")
    demo.shows("killed (kill -9)", seconds)
    demo.shows("have new leaders after", seconds)
    demo.press("b")
    demo.shows("all replicas are in sync", seconds)
    demo.press("p")
    demo.shows("dead letters: 5 waiting", seconds)
    demo.press("r")
    demo.shows("dead letters: 0 waiting, 5 replayed", seconds)
    demo.press("q")
    demo.shows("status=", seconds)
    last = demo.text()
    assert "Nothing was lost, and nothing came twice." in last
    assert "brokers killed 1, poison records 5, dead letters replayed 5" in last
    assert "status=0" in last


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_at_the_keys_without_spark(temporary: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with terminal(temporary, tmp_path_factory, "--no-spark") as demo:
        demo.shows("all in sync")
        survive(demo, WAIT_S)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_at_the_keys_with_pipelines(temporary: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with terminal(temporary, tmp_path_factory) as demo:
        demo.shows("everything runs after", 600)
        survive(demo, 600)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_headless_with_pipelines(temporary: Path) -> None:
    with started(temporary, "--headless", "--duration", "60", "--json") as demo:
        result = judged(demo, 1100)
    assert result["failures"] == []
    outputs = result["outputs"]
    assert isinstance(outputs, dict)
    assert set(outputs) == {"topics", "pipeline fleet", "pipeline shop"}
    assert all(each["arrived"] for each in outputs.values())
    assert not any(each["missing"] or each["doubled"] or each["dead_letters"] for each in outputs.values())
    assert (result["brokers_killed"], result["poison"], result["replayed"]) == (1, 5, 5)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("how", ["window closed", "interrupted", "terminated", "killed"])
def test_nothing_is_left_of_pipelines(temporary: Path, tmp_path_factory: pytest.TempPathFactory, how: str) -> None:
    if how == "window closed":
        with terminal(temporary, tmp_path_factory) as demo:
            demo.shows("everything runs after", 600)
        wait_until(lambda: not processes_of(temporary), "its processes end", WAIT_S)
        wait_until(lambda: not list(temporary.iterdir()), "its files are taken away", WAIT_S)
        return
    number = {"interrupted": signal.SIGINT, "terminated": signal.SIGTERM, "killed": signal.SIGKILL}[how]
    with started(temporary, "--headless", "--duration", "600") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "everything runs after" in line:
                break
        process.send_signal(number)
        process.communicate(timeout=WAIT_S)
    assert process.returncode == (-number if how == "killed" else 130)
    wait_until(lambda: not processes_of(temporary), "its processes end", WAIT_S)
    wait_until(lambda: not list(temporary.iterdir()), "its files are taken away", WAIT_S)


@pytest.mark.timeout(600)
def test_the_pipelines_pass_their_own_tests() -> None:
    """As a command, and with it an example whose Python keeps state: its workers end without a word."""
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    feeds = Path(__file__).parents[2] / "examples" / "pipelines" / "feeds.yaml"
    files = [*(pipeline_file(each) for each in PIPELINES), str(feeds)]
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "pipeline", "test", *files], capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("3 passed, 0 failed\n")
    assert done.stderr == ""
