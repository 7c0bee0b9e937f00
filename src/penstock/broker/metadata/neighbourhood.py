"""The nodes of the cluster that run on this machine, and whether their processes are alive.

Every incarnation of a broker or a controller announces its id on its machine before it registers. Each node that
replays the registration checks whether the process is on its own machine. So a node knows its neighbours while they
live, and when one is gone (`io/neighbours`), it is dead. A connection that ends or is refused does not prove a death:
firewalls, proxies and busy machines cause the same, so it is no reason for an election.

With this proof, the followers of a dead quorum leader start an election within a fraction of a second, and a dead
broker is fenced at once, while timeouts stay long enough for a busy machine. The table in `controller/heartbeats.py`
says what follows from each observation.

A node that has just started may have neighbours that died before. For these a refused connection is enough, if their
address is one that only processes of this machine can have.
"""

from __future__ import annotations

from penstock.broker.net.peers import is_loopback
from penstock.io.neighbours import Neighbours
from penstock.metadata.image import MetadataImage
from penstock.model.ids import Uuid


def proves_death(*, is_here: bool, was_here: bool, refused: bool, is_address_here: bool) -> bool:
    """Whether the death of the process is the only explanation."""
    return not is_here and (was_here or (refused and is_address_here))


class Neighbourhood:
    def __init__(self, neighbours: Neighbours, *, is_watched: bool) -> None:
        """`is_watched`: False to rely on the network alone."""
        self._neighbours = neighbours
        self._is_watched = is_watched
        self._met: set[Uuid] = set()
        self._looked_for: set[Uuid] = set()
        self._brokers: object = None
        self._controllers: object = None

    def announce(self, incarnation_id: Uuid) -> None:
        self._neighbours.announce(incarnation_id.hex())

    def look_around(self, image: MetadataImage) -> None:
        """The metadata changed: look for processes that have registered since."""
        if image.brokers is self._brokers and image.controllers is self._controllers:
            return
        self._brokers, self._controllers = image.brokers, image.controllers
        registered = {broker.incarnation_id for broker in image.brokers.values()}
        registered.update(controller.incarnation_id for controller in image.controllers.values())
        self._met.update(each for each in registered - self._looked_for if self.lives(each))
        self._met &= registered
        self._looked_for = registered

    def lives(self, incarnation_id: Uuid) -> bool:
        """Whether this is a live process on this machine, regardless of the network."""
        return self._is_watched and self._neighbours.is_here(incarnation_id.hex())

    def is_dead(self, incarnation_id: Uuid | None, host: str, *, refused: bool) -> bool:
        """Whether the process is certainly dead. None: incarnation unknown. `refused`: a connection was refused."""
        return self._is_watched and proves_death(
            is_here=incarnation_id is not None and self.lives(incarnation_id),
            was_here=incarnation_id in self._met,
            refused=refused,
            is_address_here=host == "localhost" or is_loopback(host),
        )

    def close(self) -> None:
        self._neighbours.withdraw()
