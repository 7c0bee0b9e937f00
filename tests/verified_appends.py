"""Appending to a log as its leader does: the first batch of a transaction shows a verification."""

from __future__ import annotations

from penstock.log.log import Appended, Log
from penstock.records.batch import read_header


def append_verified(log: Log, batch: memoryview | bytearray, leader_epoch: int, now_ms: int) -> Appended:
    """As if the coordinator had been asked, and had agreed."""
    header = read_header(batch)
    verification = None
    if header.is_transactional and not header.is_control:
        verification = log.producers.begin_verification(header, now_ms)
    return log.append_as_leader(batch, header, leader_epoch, now_ms, verification=verification)
