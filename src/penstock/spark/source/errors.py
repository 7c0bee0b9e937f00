"""The errors of a query over topics. Each message is one line that names the option, the place and what to do."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from penstock.client.errors import BadSetting, ClientError
from penstock.model.ids import TopicPartition

logger = logging.getLogger(__name__)


class BadOption(BadSetting):
    """An option that is missing, misspelt, in conflict with another, or has an invalid value."""


class MissingTopic(BadOption):
    """A topic that the cluster does not have; it may come."""


class OutOfRange(ClientError):
    """Offsets to start or end at that are outside the log."""


class DataLost(ClientError):
    """Records that the query should read are gone."""


class ForeignCheckpoint(ClientError):
    """A checkpoint that was not written by this query."""


class SourceUnreachable(ClientError):
    """No broker answers at the given addresses."""


def lost(partition: TopicPartition, first: int, end: int, why: str) -> str:
    return f"{partition}: offsets {first} to {end - 1} are lost: {why}"


def data_lost(losses: Sequence[str]) -> DataLost:
    more = f" (and so in {len(losses) - 1} more partitions)" if len(losses) > 1 else ""
    return DataLost(f'{losses[0]}{more}; option("failOnDataLoss", "false") goes on with what is there')


def report_losses(losses: Sequence[str], *, fail: bool) -> None:
    """Raise an error, unless the query is set to continue."""
    if losses and fail:
        raise data_lost(losses)
    for each in losses:
        logger.warning("%s; the query goes on (failOnDataLoss=false)", each)
