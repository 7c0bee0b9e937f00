"""Where rows go that do not go to topics.

A sink of another package is an entry point of the group `penstock.sinks`, named as its format:

    [project.entry-points."penstock.sinks"]
    mongo = "penstock_mongo:MongoSink"

It is a `Sink`, made with a `Destination`. `destination` says what it promises, and `penstock.testing.sinks` tests it.
"""

from penstock.pipelines.sinks.destination import ORIGIN, Destination, Refused, Sink, SinkUnavailable

__all__ = ["ORIGIN", "Destination", "Refused", "Sink", "SinkUnavailable"]
