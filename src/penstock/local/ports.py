"""Free TCP ports for nodes that must know their port before they bind it.

A port is free when it can be bound now; another process may take it before the node does. Ports are therefore chosen
below the kernel's ephemeral range, where no outgoing connection gets one by chance, and the caller starts again with
new ones if a node finds its port taken.
"""

from __future__ import annotations

import random
import socket

_LOWEST, _HIGHEST = 15_000, 32_000


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    draw = random.SystemRandom()  # never the seeded one: two test processes would choose the same ports
    found: list[int] = []
    for _ in range(1000):
        port = draw.randrange(_LOWEST, _HIGHEST)
        if port not in found and is_free(port, host):
            found.append(port)
            if len(found) == count:
                return found
    raise OSError(f"no {count} free ports between {_LOWEST} and {_HIGHEST} on {host}")
