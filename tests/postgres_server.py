"""A private PostgreSQL, from the binaries that Debian installs. It listens at a socket in its own directory, so there
is no port to be had by two."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

DATABASE = "postgres"
PASSWORD = "pass-of-postgres"
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "listen_addresses": "",
    "shared_buffers": "16MB",
    "max_connections": "40",
    "jit": "off",
}


class PostgresServer:
    def __init__(self, binaries: str, directory: str, user: str) -> None:
        self._binaries = binaries
        self._directory = directory
        self._user = user
        self.options = {"host": directory, "user": user, "dbname": DATABASE, "password": PASSWORD}

    def start(self) -> None:
        settings = {**_SETTINGS, "unix_socket_directories": self._directory}
        text = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
        self._control("start", "-w", "-t", "120", "-l", f"{self._directory}/log", "-o", text)

    def stop(self) -> None:
        """At once, as after a crash."""
        self._control("stop", "-w", "-m", "immediate")

    def initialise(self) -> None:
        password = f"{self._directory}/password"
        with open(password, "w") as file:
            file.write(PASSWORD)
        os.chmod(password, 0o644)
        with_password = ["--auth=scram-sha-256", f"--pwfile={password}", f"--username={self._user}"]
        self._run(
            "initdb", "-D", f"{self._directory}/data", "--no-sync", "--locale=C.UTF-8", "-E", "UTF8", *with_password
        )

    def query(self, text: str) -> list[tuple[Any, ...]]:
        import psycopg.conninfo

        with psycopg.connect(psycopg.conninfo.make_conninfo(**self.options), autocommit=True) as server:
            found = server.execute(text)
            return found.fetchall() if found.description else []

    def _control(self, *arguments: str) -> None:
        self._run("pg_ctl", "-D", f"{self._directory}/data", *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        as_user: dict[str, Any] = {}
        if os.getuid() == 0:
            as_user = {"user": self._user, "group": self._user, "extra_groups": []}
        done = subprocess.run(
            [os.path.join(self._binaries, program), *arguments],
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=150,
            **as_user,
        )
        assert done.returncode == 0, done.stdout


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    binaries = _binaries()
    if binaries is None:
        pytest.skip("there is no PostgreSQL here: apt-get install postgresql")
    user = pwd.getpwuid(os.getuid()).pw_name
    if os.getuid() == 0:
        try:
            user = pwd.getpwnam("postgres").pw_name
        except KeyError:
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
    directory = tempfile.mkdtemp(prefix="pg-", dir="/tmp")  # paths of sockets are short
    try:
        if os.getuid() == 0:
            shutil.chown(directory, user, user)
        server = PostgresServer(binaries, directory, user)
        server.initialise()
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory)


def _binaries() -> str | None:
    """Debian keeps them beside the path, a directory for each version."""
    found = shutil.which("pg_ctl")
    if found is not None:
        return os.path.dirname(os.path.realpath(found))
    versions = glob.glob("/usr/lib/postgresql/*/bin/pg_ctl")
    return os.path.dirname(max(versions, key=lambda path: int(path.split("/")[4]))) if versions else None
