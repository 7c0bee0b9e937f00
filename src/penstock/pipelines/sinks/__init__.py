"""Sinks for rows that do not go to topics.

Another package provides a sink as an entry point of the group `penstock.sinks`, named after its format:

    [project.entry-points."penstock.sinks"]
    mongo = "penstock_mongo:MongoSink"

The class is a `Sink`, constructed with a `Destination`. `destination` defines its contract, and
`penstock.testing.sinks` tests it.
"""

from penstock.pipelines.sinks.destination import ORIGIN, Destination, Refused, Sink, SinkUnavailable

__all__ = ["ORIGIN", "Destination", "Refused", "Sink", "SinkUnavailable"]
