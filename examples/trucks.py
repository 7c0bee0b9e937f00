"""Many services on one stream: a location dashboard and a fuel monitor each read all positions of all trucks.

Each service is a group of its own, so each gets every record, remembers for itself how far it has come, and can be
stopped, restarted or added years later without the trucks or the other services knowing.

penstock up                                   (in another terminal)
python examples/trucks.py
penstock groups list
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from penstock import Admin, Consumer, Json, Producer, String

BOOTSTRAP = os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")
TOPIC = "trucks.positions"


@dataclass
class Position:
    latitude: float
    longitude: float
    fuel: float


def drive(trucks: int, kilometres: int) -> None:
    with Producer(BOOTSTRAP, key=String(), value=Json(Position)) as producer:
        for kilometre in range(kilometres):
            for truck in range(1, trucks + 1):
                fuel = 100 - kilometre * truck
                position = Position(52.5 + kilometre / 100, 13.4 + truck, fuel)
                producer.send(TOPIC, position, key=f"truck-{truck}")


def location_dashboard() -> dict[str, Position]:
    """Where each truck is now."""
    latest: dict[str, Position] = {}
    with Consumer(BOOTSTRAP, TOPIC, group="location-dashboard", key=String(), value=Json(Position)) as consumer:
        for record in consumer.records(idle=2):
            latest[record.key] = record.value
    return latest


def fuel_monitor(below: float) -> set[str]:
    """Trucks that must be refuelled."""
    low: set[str] = set()
    with Consumer(BOOTSTRAP, TOPIC, group="fuel-monitor", key=String(), value=Json(Position)) as consumer:
        for record in consumer.records(idle=2):
            if record.value.fuel < below:
                low.add(record.key)
    return low


def main() -> None:
    with Admin(BOOTSTRAP) as admin:
        admin.topics.create(TOPIC, partitions=3)
    drive(trucks=3, kilometres=40)
    for truck, position in sorted(location_dashboard().items()):
        print(f"{truck} is at {position.latitude:.2f}, {position.longitude:.2f}")
    print("to be refuelled:", *sorted(fuel_monitor(below=30)))


if __name__ == "__main__":
    main()
