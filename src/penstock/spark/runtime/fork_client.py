"""What Spark starts as Python: asks the fork server for a child, and lives as long as that.

    python -I -S fork_client.py PYTHON SOCKET -m MODULE ARGUMENT...

Runs without Penstock and without most of Python's library: it is started for every kind of worker, which waits for each
import. If the server does not fork, it becomes the Python that it stands for.
"""

from __future__ import annotations

import _socket
import json
import os
import sys
from array import array


def status_of_child(path: str, arguments: list[str]) -> int | None:
    """The exit status; None if there is no child."""
    request = json.dumps({"arguments": arguments, "environment": dict(os.environ), "directory": os.getcwd()}).encode()
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.connect(path)
        streams = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array("i", [0, 1, 2]))]
        connection.sendmsg([len(request).to_bytes(4, "big")], streams)
        connection.sendall(request)
        if connection.recv(1) != b"\x01":
            return None
    except OSError:
        return None
    # From here on there is a child: whatever happens, no second one may be started.
    try:
        status = connection.recv(1)
    except OSError:
        return 1
    return status[0] if status else 1


def main() -> None:
    python, path, *arguments = sys.argv[1:]
    status = status_of_child(path, arguments[1:])
    if status is None:
        os.execv(python, [python, *arguments])
    os._exit(status)


if __name__ == "__main__":
    main()
