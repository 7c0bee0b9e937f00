"""What a query over topics can be told is wrong. Each is one line that names the option, the place and the way out."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from penstock.client.errors import BadSetting, ClientError
from penstock.model.ids import TopicPartition

logger = logging.getLogger(__name__)


class BadOption(BadSetting):
    """An option that is missing, misspelt, at odds with another, or of a value that it cannot have."""


class OutOfRange(ClientError):
    """Offsets to start or end at that are not in the log."""


class DataLost(ClientError):
    """Records that the query was to read are gone."""


class ForeignCheckpoint(ClientError):
    """A checkpoint that was not written by this query."""


class SourceUnreachable(ClientError):
    """No broker answers at the addresses that were given."""


def lost(partition: TopicPartition, first: int, end: int, why: str) -> str:
    return f"{partition}: offsets {first} to {end - 1} are lost: {why}"


def data_lost(losses: Sequence[str]) -> DataLost:
    more = f" (and so in {len(losses) - 1} more partitions)" if len(losses) > 1 else ""
    return DataLost(f'{losses[0]}{more}; option("failOnDataLoss", "false") goes on with what is left')


def report_losses(losses: Sequence[str], *, fail: bool) -> None:
    """An error, unless the query was told to go on."""
    if losses and fail:
        raise data_lost(losses)
    for each in losses:
        logger.warning("%s; the query goes on (failOnDataLoss=false)", each)
