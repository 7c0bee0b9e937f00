"""Finds where the history of a reader (follower or consumer) diverges from the log it fetches from (KIP-595)."""

from __future__ import annotations

from penstock.log.log import Log
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.fetch import EpochEndOffset
from penstock.replication.epochs import UNDEFINED_OFFSET


def divergence(log: Log, fetch_offset: int, last_fetched_epoch: int) -> EpochEndOffset | None:
    """None if the histories do not diverge, or if the reader does not send its last fetched epoch."""
    if last_fetched_epoch < 0:
        return None
    epoch, end = log.epochs.end_offset_for(last_fetched_epoch, log.log_end_offset)
    if end == UNDEFINED_OFFSET or fetch_offset < log.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < last_fetched_epoch or end < fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end)
    return None
