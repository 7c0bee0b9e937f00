"""The documentation does what it says: generated pages are current, examples run as printed.

The examples of a page (see `documentation`) run in order, against a cluster of its own that `penstock up` started;
`127.0.0.1:9092`, `127.0.0.1:8081` and `penstock-data` become that cluster's.
"""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from documentation import Run, blocks_of, check_output, run_console
from penstock.local.ports import free_ports

if TYPE_CHECKING:
    from conftest import CommandLine

ROOT = Path(__file__).parents[2]
# Pages about several machines, or made of tables and prose, show no examples that could be run here.
WITHOUT_EXAMPLES = {"changing-types.md", "clusters.md", "operations.md"}
# Tried by tests/spark, which has Spark running.
WITH_SPARK = {"spark.md"}
# Tried by tests/docs, with several machines, and by tests/demo.
WITH_MACHINES = {"deploy.md", "upgrade.md", "grow.md", "demo.md"}
# Needs a node with TLS and users; its ways to connect are those of tests/security/test_secure_clients.py.
WITH_USERS = {"secured-clients.md"}
# What `penstock up` is started with, as the page itself says.
OPTIONS = {
    "acls.md": ["-o", "authorizer.class.name=StandardAuthorizer", "-o", "super.users=User:ANONYMOUS"],
    "secure.md": ["--secure"],
    "serializers.md": ["--registry"],
}
PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    if page.name not in WITHOUT_EXAMPLES | WITH_SPARK | WITH_MACHINES | WITH_USERS
    and re.search("^```(console|python)$", page.read_text(encoding="utf-8"), re.MULTILINE)
)


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name", ["settings.md", "apis.md", "metrics.md", "cli.md", "errors.md", "../architecture/modules.md"]
)
def test_generated_pages_are_current(name: str, generate: ModuleType) -> None:
    page: Callable[[], str] = generate.PAGES[name]
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page(), "run make docs"


def test_pictures_are_current() -> None:
    pictures = runpy.run_path(str(ROOT / "docs" / "pictures" / "draw.py"))["PICTURES"]
    for name, picture in pictures.items():
        drawn = picture().svg()
        ElementTree.fromstring(drawn)
        assert (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8") == drawn, "run make docs"


class Cluster:
    def __init__(self, directory: Path, options: list[str]) -> None:
        self.directory = directory
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        self.environment = {
            **os.environ,
            "PENSTOCK_BOOTSTRAP": self.address,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        if "--secure" in options:
            self.environment["PENSTOCK_COMMAND_CONFIG"] = "penstock-data/client.properties"
        where = ["--port", self.address.rpartition(":")[2], "--data", str(directory / "penstock-data")]
        self.registry = f"127.0.0.1:{free_ports(1)[0]}"
        if "--registry" in options:
            where += ["--registry-port", self.registry.rpartition(":")[2]]
        self.up = subprocess.Popen(
            ["penstock", "up", *where, *options],
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment,
        )
        assert self.up.stdout is not None
        assert self.up.stdout.readline() == f"ready {self.address}\n"

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=180, check=False, cwd=self.directory, env=self.environment
        )

    def stop(self) -> None:
        self.up.send_signal(signal.SIGTERM)
        self.up.communicate(timeout=60)


@pytest.fixture
def cluster(tmp_path: Path, page: str) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, OPTIONS.get(Path(page).name, []))
    yield cluster
    cluster.stop()


@pytest.fixture
def run_penstock(cluster: Cluster, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Run:
    """In this process, with the cluster's directory and environment."""
    monkeypatch.chdir(cluster.directory)
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)

    def run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
        result = cli(*arguments)
        return subprocess.CompletedProcess(arguments, result.status, result.out, result.err)

    return run


@pytest.mark.timeout(600)  # some pages start many processes, one after the other
@pytest.mark.parametrize("page", PAGES)
def test_examples_run_as_printed(page: str, cluster: Cluster, run_penstock: Run) -> None:
    blocks = blocks_of(ROOT / page)
    printed = None
    for language, block in blocks:
        if language == "console":
            run_console(block, cluster.run, run_penstock)
        elif language == "python":
            program = block.replace("127.0.0.1:9092", cluster.address).replace("127.0.0.1:8081", cluster.registry)
            result = cluster.run([sys.executable, "-c", program])
            assert result.returncode == 0, f"{block}\n{result.stderr}"
            printed = result.stdout
        elif language == "text":
            assert printed is not None
            check_output(block, printed, "the program before")


def test_the_lock_holds_no_addresses() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    assert "--index-url" not in text
    assert "--find-links" not in text
