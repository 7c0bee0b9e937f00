"""Connections that end together."""

from __future__ import annotations

import socket
import threading

import pytest

from penstock.client.errors import Closed, Unreachable
from penstock.client.wire.bundle import Bundle, join_bundle
from penstock.client.wire.connection import Connection


def test_who_waits_for_an_answer_is_woken_and_nothing_new_is_opened() -> None:
    bundle = Bundle()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        failures: list[Exception] = []

        def wait() -> None:
            try:
                bundle.run(Connection, "127.0.0.1", port, timeout=60)
            except Unreachable as error:
                failures.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        accepted, _ = silent.accept()
        with accepted:
            assert accepted.recv(1024)  # its first request, which is never answered
            bundle.cut()
            waiting.join(10)
        assert not waiting.is_alive()
        assert len(failures) == 1
        with pytest.raises(Closed):
            bundle.run(Connection, "127.0.0.1", port, timeout=60)


def test_connections_of_others_stay() -> None:
    bundle, other = Bundle(), Bundle()
    ours, theirs = socket.socketpair(), socket.socketpair()
    with ours[0], ours[1], theirs[0], theirs[1]:
        bundle.run(join_bundle, ours[0])
        other.run(join_bundle, theirs[0])
        join_bundle(theirs[0])  # with an unknown key
        bundle.cut()
        assert ours[1].recv(1) == b""
        theirs[0].sendall(b"x")
        assert theirs[1].recv(1) == b"x"
