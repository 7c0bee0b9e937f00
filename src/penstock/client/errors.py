"""What can go wrong between a client and a cluster, each as one line a person can act on.

Errors a broker answers with are `KafkaError`s with Kafka's code; these are the others.
"""

from __future__ import annotations

from penstock.model.errors import ErrorCode, KafkaError

_CODES = {int(code): code for code in ErrorCode}


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


def raise_for(code: int, message: str | None, about: str) -> None:
    """A KafkaError if the code is one: what it is about, then what the broker says, or else what the code means."""
    if code:
        error = _CODES.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)
        raise KafkaError(error, f"{about}: {message or error.text}")
