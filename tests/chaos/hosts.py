"""Hosts of their own on one machine: network namespaces with a switch between them, and a small disk each.

The program that plays the storm runs in a namespace, too (`ip netns exec`), as no address here means anything outside.
A host's link can be pulled, which silences it for everybody, or its way to one other host taken away, which silences it
for that host alone, in one direction. Its disk is a tmpfs: it can be filled to the last block, and a library in front
of the C library makes writes and syncs fail (`faulty_disk.c`).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

NETWORK = "10.231.7"
CLIENTS = 1  # the last number of the address that the storm itself has
SOURCE = Path(__file__).with_name("faulty_disk.c")
CONTROL = struct.Struct("=iii")
BLOCK = 4096
RESERVE = 256  # blocks


def why_not() -> str | None:
    """What is missing to play with hosts here; None if nothing is."""
    for command, package in (("ip", "iproute2"), ("gcc", "gcc"), ("mount", "mount")):
        if shutil.which(command) is None:
            return f"{command} is not installed (Debian's package {package})"
    if os.geteuid() != 0:
        return "network namespaces and mounts are for root"
    name = f"penstock-{os.getpid()}-try"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"this machine has no network namespaces: {tried.stderr.strip()}"
    _ip("netns", "del", name)
    return None


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@contextlib.contextmanager
def network(hosts: int) -> Iterator[str]:
    """Namespaces NAME-1 (for the storm) to NAME-(hosts + 1), all on one switch; NAME on entering the block."""
    name = f"penstock-{os.getpid()}"
    switch = f"{name}-switch"
    with contextlib.ExitStack() as stack:
        _ip("netns", "add", switch)
        stack.callback(_ip, "netns", "del", switch)
        _ip("-n", switch, "link", "add", "switch", "type", "bridge")
        _ip("-n", switch, "link", "set", "switch", "up")
        for number in range(CLIENTS, hosts + CLIENTS + 1):
            namespace = f"{name}-{number}"
            _ip("netns", "add", namespace)
            stack.callback(_ip, "netns", "del", namespace)
            port = f"port{number}"
            _ip("-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            _ip("-n", switch, "link", "set", port, "master", "switch", "up")
            _ip("-n", namespace, "address", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _ip("-n", namespace, "link", "set", device, "up")
        yield name


class Host:
    """One machine of the storm: `number` is the end of its address."""

    def __init__(self, network_name: str, number: int, directory: Path, library: Path, disk_bytes: int) -> None:
        self.number = number
        self.address = f"{NETWORK}.{number}"
        self.directory = directory
        self.disk = directory / "disk"
        self._network = network_name
        self._library = library
        self._control_path = directory / "faults"
        self.disk.mkdir(parents=True)
        self._control_path.write_bytes(CONTROL.pack(0, 0, 0))
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={disk_bytes}", "penstock", str(self.disk)],
            check=True,
            capture_output=True,
        )
        with open(self._control_path, "r+b") as file:
            self._control = mmap.mmap(file.fileno(), CONTROL.size)

    @property
    def wrapper(self) -> Sequence[str]:
        return ["ip", "netns", "exec", f"{self._network}-{self.number}"]

    @property
    def environment(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(self._library),
            "PENSTOCK_FAULTY_DISK": str(self._control_path),
            "PENSTOCK_FAULTY_ROOT": str(self.disk),
        }

    # -- network ----------------------------------------------------------------------------------------------------

    def unplug(self) -> None:
        _ip("-n", f"{self._network}-switch", "link", "set", f"port{self.number}", "down")

    def plug_in(self) -> None:
        _ip("-n", f"{self._network}-switch", "link", "set", f"port{self.number}", "up")

    def deafen(self, other: Host) -> None:
        """Nothing that this host sends reaches the other one; what the other one sends still comes here."""
        _ip("-n", f"{self._network}-{self.number}", "route", "add", "blackhole", f"{other.address}/32")

    def hear(self, other: Host) -> None:
        _ip("-n", f"{self._network}-{self.number}", "route", "del", "blackhole", f"{other.address}/32")

    # -- disk -------------------------------------------------------------------------------------------------------

    def fill_disk(self, leave: int) -> None:
        """To the last block but `leave`."""
        room = os.statvfs(self.disk)
        most = max(0, room.f_bavail * room.f_frsize - RESERVE * BLOCK)  # others write meanwhile
        with open(self.disk / "filler", "wb", buffering=0) as filler:
            if most:
                os.posix_fallocate(filler.fileno(), 0, most)
            filler.seek(most)
            with contextlib.suppress(OSError):  # until it is full
                for _ in range(2 * RESERVE):
                    filler.write(bytes(BLOCK))
            filler.truncate(max(0, filler.tell() - leave * BLOCK))

    def empty_disk(self) -> None:
        (self.disk / "filler").unlink(missing_ok=True)

    def fail(self, *, writes: int = 0, syncs: int = 0) -> None:
        """So many of the next operations, counted from now; none to end it."""
        _, _, failed = CONTROL.unpack(self._control)
        self._control[:] = CONTROL.pack(writes, syncs, failed)

    @property
    def failed(self) -> int:
        """How many operations failed, all together."""
        return int(CONTROL.unpack(self._control)[2])


def build_library(directory: Path) -> Path:
    library = directory / "faulty_disk.so"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"], check=True, capture_output=True
    )
    return library
