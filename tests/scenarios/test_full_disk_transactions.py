"""A transaction is aborted while its broker's disk is full: what it wrote is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.log.transaction_index import ENTRY_SIZE
from penstock.model.errors import ErrorCode
from penstock.testing.nodes import start_node
from scenarios.coordinator_calls import find_coordinators, new_producer, patiently
from waiting import wait_until
from wire import Wire, batch, create_topic, fetch, produce, values

INDEX = "00000000000000000000.txnindex"
NO_SPACE = "has no disk space for its transaction index"


def test_an_abort_without_room_shows_nothing(small_disk: Path) -> None:
    """The marker would fit into the last block of the log. The file that says what was aborted fits nowhere."""
    properties = {"transaction.state.log.num.partitions": "1", "log.flush.offset.checkpoint.interval.ms": "3600000"}
    with start_node(small_disk / "node", properties=properties) as node, Wire(node) as wire:
        create_topic(wire, "t")
        find_coordinators(wire)
        producer = new_producer(wire, "shop")
        assert produce(wire, "t", batch("before")).error_code == ErrorCode.NONE
        (written,) = (each.partition_responses for each in wire.ask(producer.produce("t", 0), 12).responses)
        assert written[0].error_code == ErrorCode.NONE, written

        filler = small_disk / "filler"
        with pytest.raises(OSError), open(filler, "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        ended = patiently(wire, producer.end(committed=False), 5)
        assert ended.error_code == ErrorCode.NONE, ended
        wait_until(lambda: NO_SPACE in node.log_text(), "the coordinator has tried")
        assert produce(wire, "t", batch("behind")).error_code == ErrorCode.NONE  # in the last block there is room

        answer = fetch(wire, "t", isolation_level=1)
        assert values(answer.records) == [b"before"]
        assert (answer.high_watermark, answer.last_stable_offset) == (3, 1)

        filler.unlink()
        wait_until(lambda: fetch(wire, "t", isolation_level=1).last_stable_offset == 4, "the transaction is over")
        for how in (node.kill, node.stop):
            with Wire(node) as reader:
                (aborted,) = fetch(reader, "t", isolation_level=1).aborted_transactions
            assert (aborted.producer_id, aborted.first_offset) == (producer.id, 1)
            assert (Path(node.partition_directory("t", 0)) / INDEX).stat().st_size == ENTRY_SIZE
            how()
            node.start()
    assert "Traceback" not in node.log_text()
