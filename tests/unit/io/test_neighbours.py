from __future__ import annotations

import subprocess
import sys
from itertools import product

import pytest

from penstock.broker.metadata.neighbourhood import Neighbourhood, proves_death
from penstock.io.neighbours import RealNeighbours
from penstock.simulator.stories.controller_world import World

linux = pytest.mark.skipif(sys.platform != "linux", reason="names without files are Linux's")

PROGRAM = """
import sys
from penstock.io.neighbours import RealNeighbours
neighbours = RealNeighbours()
neighbours.announce(sys.argv[1])
print("announced", flush=True)
sys.stdin.read()
"""


def test_what_proves_a_death() -> None:
    """Nothing does while the process is there; a refused connection alone never does."""
    found = {
        (is_here, was_here, refused, is_address_here)
        for is_here, was_here, refused, is_address_here in product((False, True), repeat=4)
        if proves_death(is_here=is_here, was_here=was_here, refused=refused, is_address_here=is_address_here)
    }
    assert found == {
        (False, True, False, False),
        (False, True, False, True),
        (False, True, True, False),
        (False, True, True, True),
        (False, False, True, True),
    }


@linux
def test_a_name_is_gone_with_its_process(tmp_path: object) -> None:
    name = f"test/{tmp_path}"
    neighbours = RealNeighbours()
    assert not neighbours.is_here(name)
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "announced\n"
        for _ in range(1000):  # the neighbour does not notice that it is looked for
            assert neighbours.is_here(name)
        process.kill()
        process.wait()
        assert not neighbours.is_here(name)


@linux
def test_who_withdraws_is_not_found_any_more(tmp_path: object) -> None:
    neighbours = RealNeighbours()
    neighbours.announce(f"test/{tmp_path}")
    assert neighbours.is_here(f"test/{tmp_path}")
    neighbours.withdraw()
    assert not neighbours.is_here(f"test/{tmp_path}")


class Names:
    def __init__(self, *names: str) -> None:
        self.names = set(names)

    def announce(self, name: str) -> None:
        self.names.add(name)

    def is_here(self, name: str) -> bool:
        return name in self.names

    def withdraw(self) -> None:
        self.names.clear()


def test_a_neighbour_that_was_met_and_is_gone_is_dead() -> None:
    image = World(brokers=2).image
    one, two = image.brokers[1].incarnation_id, image.brokers[2].incarnation_id
    names = Names(one.hex())
    neighbourhood = Neighbourhood(names, is_watched=True)
    neighbourhood.look_around(image)
    assert neighbourhood.lives(one) and not neighbourhood.lives(two)
    # It lives, whatever its address says; nothing is known of the other.
    assert not neighbourhood.is_dead(one, "127.0.0.1", refused=True)
    assert not neighbourhood.is_dead(two, "somewhere", refused=True)
    names.names.clear()
    assert neighbourhood.is_dead(one, "somewhere", refused=False)
    assert not neighbourhood.is_dead(two, "somewhere", refused=True)


def test_a_neighbour_that_died_before_is_known_by_its_address() -> None:
    image = World(brokers=1).image
    one = image.brokers[1].incarnation_id
    neighbourhood = Neighbourhood(Names(), is_watched=True)
    neighbourhood.look_around(image)
    assert not neighbourhood.is_dead(one, "127.0.0.1", refused=False)
    assert neighbourhood.is_dead(one, "127.0.0.1", refused=True)
    assert neighbourhood.is_dead(None, "localhost", refused=True)
    assert not neighbourhood.is_dead(one, "10.0.0.1", refused=True)


def test_where_neighbours_are_not_watched_nobody_is_known_to_be_dead() -> None:
    image = World(brokers=1).image
    one = image.brokers[1].incarnation_id
    names = Names(one.hex())
    neighbourhood = Neighbourhood(names, is_watched=False)
    neighbourhood.look_around(image)
    names.names.clear()
    assert not neighbourhood.is_dead(one, "127.0.0.1", refused=True)
