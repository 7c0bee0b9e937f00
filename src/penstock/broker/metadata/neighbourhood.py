"""The nodes of the cluster that run on this machine, and whether their processes still do.

Every incarnation of a broker or a controller announces its id on its machine before it registers. Whoever replays the
registration looks whether it is here. So a node knows which of the others are its neighbours while they live, and what
it means that one is not to be found any more: it is dead. A connection that ends, or is refused, does not mean that by
itself; firewalls, proxies and busy machines do as much.

A node that has just started may know of neighbours that died before it came. For these a connection that is refused has
to do, where their address is one that only processes of this machine can have.
"""

from __future__ import annotations

from penstock.broker.net.peers import is_loopback
from penstock.io.neighbours import Neighbours
from penstock.metadata.image import MetadataImage
from penstock.model.ids import Uuid


def proves_death(*, is_here: bool, was_here: bool, refused: bool, is_address_here: bool) -> bool:
    """Whether what is known of a process leaves no other explanation."""
    return not is_here and (was_here or (refused and is_address_here))


class Neighbourhood:
    def __init__(self, neighbours: Neighbours, *, is_watched: bool) -> None:
        """`is_watched`: false if the network alone is to tell."""
        self._neighbours = neighbours
        self._is_watched = is_watched
        self._met: set[Uuid] = set()
        self._looked_for: set[Uuid] = set()
        self._brokers: object = None
        self._controllers: object = None

    def announce(self, incarnation_id: Uuid) -> None:
        self._neighbours.announce(incarnation_id.hex())

    def look_around(self, image: MetadataImage) -> None:
        """The metadata moved on."""
        if image.brokers is self._brokers and image.controllers is self._controllers:
            return
        self._brokers, self._controllers = image.brokers, image.controllers
        registered = {broker.incarnation_id for broker in image.brokers.values()}
        registered.update(controller.incarnation_id for controller in image.controllers.values())
        self._met.update(each for each in registered - self._looked_for if self.lives(each))
        self._met &= registered
        self._looked_for = registered

    def lives(self, incarnation_id: Uuid) -> bool:
        """Whether this is a process of this machine that lives, whatever the network says."""
        return self._is_watched and self._neighbours.is_here(incarnation_id.hex())

    def is_dead(self, incarnation_id: Uuid | None, host: str, *, refused: bool) -> bool:
        """Whether it is for certain. None: nobody knows which incarnation it was. `refused`: a connection was."""
        return self._is_watched and proves_death(
            is_here=incarnation_id is not None and self.lives(incarnation_id),
            was_here=incarnation_id in self._met,
            refused=refused,
            is_address_here=host == "localhost" or is_loopback(host),
        )

    def close(self) -> None:
        self._neighbours.withdraw()
