"""What can go wrong between a client and a cluster, each as one line a person can act on.

Errors a broker answers with are `KafkaError`s with Kafka's code; these are the others.
"""

from __future__ import annotations


class ClientError(Exception):
    """The base of all below."""


class Unreachable(ClientError):
    """No connection, or it broke."""


class TimedOut(ClientError):
    """Connected, but no answer in time."""


class UnsupportedApi(ClientError):
    """The broker does not serve this request in any version we speak."""


class BadResponse(ClientError):
    """Bytes that are no Kafka response; most likely the peer is not a Kafka broker."""
