"""Kafka's own DumpLogSegments reads the broker's files, while it runs and after it stopped, and has nothing to say."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

import pytest

from clients import contract
from clients.cases import CODECS, as_read, awkward_records, numbered_records
from clients.drivers import Client, Record
from clients.drivers.confluent import ConfluentKafka
from clients.drivers.java import dump_log_segments
from clients.drivers.kafka_python import KafkaPython
from waiting import wait_until

PROPERTIES = {
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "log.cleaner.backoff.ms": "100",
}
"""Snapshots of the metadata and compaction as soon as there is something to do."""

COMPLAINTS = re.compile(
    r"isvalid: false|Mismatch|mismatch|Exception|Error|not found in the log|out of order|[Cc]orrupt|[Ii]nvalid|"
    r"Could not|Unable|indexed offset|UNKNOWN|[Uu]nrecognized|unsupported"
)
NO_COMPLAINT = re.compile(r"Non-consecutive offsets in \S+\n|  (-?\d+) is followed by \d+\n")
"""Compaction leaves gaps, and the tool takes the first offset of a file for one as well; it says so on stderr."""


class Files(NamedTuple):
    bootstrap: str
    client: ConfluentKafka
    directory: str
    preallocated: bool
    """Apache Kafka's index files of the segment being written are full of zeros, which its own tool calls corrupt."""

    def of(self, topic: str, suffix: str) -> list[str]:
        found = sorted(glob.glob(os.path.join(self.directory, f"{topic}-0", f"*{suffix}")))
        if self.preallocated and suffix.endswith("index"):
            active = os.path.basename(found[-1]).split(".")[0]
            return [path for path in found if not os.path.basename(path).startswith(active)]
        return found

    def active_segment(self, topic: str) -> int:
        return int(os.path.basename(self.of(topic, ".log")[-1]).removesuffix(".log"))

    def cleaned_up_to(self, topic: str) -> int | None:
        path = os.path.join(self.directory, "cleaner-offset-checkpoint")
        if not os.path.exists(path):
            return None
        with open(path) as checkpoint:
            found = re.search(rf"^{topic} 0 (\d+)$", checkpoint.read(), re.MULTILINE)
        return int(found[1]) if found else None


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Files]:
    if elsewhere := os.environ.get("PENSTOCK_TEST_BOOTSTRAP"):
        if "PENSTOCK_TEST_LOG_DIR" not in os.environ:
            pytest.skip("PENSTOCK_TEST_LOG_DIR does not say where the cluster under test has its files")
        yield Files(elsewhere, ConfluentKafka(elsewhere), os.environ["PENSTOCK_TEST_LOG_DIR"], True)
        return
    from penstock.testing.nodes import start_node

    with start_node(tmp_path_factory.mktemp("dumped") / "node", properties=PROPERTIES) as node:
        yield Files(node.bootstrap, ConfluentKafka(node.bootstrap), node.data_directory, False)


@pytest.fixture(scope="module")
def topic(files: Files, topic_name: contract.TopicName) -> str:
    """Two segments and part of a third: all codecs, with and without idempotence, awkward records, index entries."""
    name = topic_name()
    files.client.create_topic(name, 1, {"segment.bytes": "1048576", "index.interval.bytes": "500"})
    wait_until(lambda: files.client.partition_count(name) == 1)
    with closing(KafkaPython(files.bootstrap)) as writer:
        write_stages(writer, name)
    return name


def write_stages(writer: Client, topic: str) -> None:
    for stage, codec in enumerate([*CODECS, "none"]):
        writer.produce(topic, awkward_records(writer, [0]), codec=codec)
        # Timestamps that rise from stage to stage, as the time index keeps only those.
        later = 10_000 * (stage + 1)
        numbered = numbered_records(1_000, size=1_500)
        rising = [record._replace(timestamp=(record.timestamp or 0) + later) for record in numbered]
        writer.produce(topic, rising, codec=codec, idempotent=True, batch_bytes=8_000)


def dump(*options: str, files: list[str]) -> str:
    assert files
    outcome = dump_log_segments(*options, "--files", ",".join(files))
    assert outcome.returncode == 0, outcome.stderr
    assert NO_COMPLAINT.sub("", outcome.stderr) == ""
    complaint = COMPLAINTS.search(outcome.stdout)
    assert complaint is None, outcome.stdout[max(0, complaint.start() - 500) : complaint.end() + 500]
    return outcome.stdout


def test_reads_segments_record_by_record(files: Files, topic: str) -> None:
    logs = files.of(topic, ".log")
    assert len(logs) >= 3
    output = dump("--deep-iteration", "--print-data-log", files=logs)
    offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+) ", output, re.MULTILINE)]
    assert offsets == list(range(files.client.latest(topic, 0)))
    assert set(re.findall(r"compresscodec: (\w+)", output)) == set(CODECS)
    assert "key: compressible payload: abcdefghabcdefgh" in output
    assert "headerKeys: [tag,tag,tag]" in output


def test_finds_the_indexes_right(files: Files, topic: str) -> None:
    indexes = files.of(topic, "index")
    dump("--index-sanity-check", files=indexes)
    dump("--verify-index-only", files=indexes)
    output = dump(files=indexes)
    assert len(re.findall(r"^offset: \d+ position: \d+", output, re.MULTILINE)) > 100
    assert len(re.findall(r"^timestamp: \d+ offset: \d+", output, re.MULTILINE)) > 50


def test_reads_snapshots_of_producers(files: Files, topic: str) -> None:
    output = dump(files=files.of(topic, ".snapshot"))
    assert re.search(r"producerId: \d+ producerEpoch: 0 .* lastSequence: 999 ", output)


def test_decodes_the_metadata_log(files: Files, topic: str) -> None:
    output = dump("--cluster-metadata-decoder", files=files.of("__cluster_metadata", ".log"))
    for record in ("FEATURE_LEVEL_RECORD", "REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD"):
        assert f'"type":"{record}"' in output or files.of("__cluster_metadata", ".checkpoint")
    assert f'"name":"{topic}"' in output or files.of("__cluster_metadata", ".checkpoint")
    assert "LeaderChange" in output or files.of("__cluster_metadata", ".checkpoint")


def test_decodes_snapshots_of_the_metadata(files: Files, topic: str) -> None:
    if not files.preallocated:
        wait_until(lambda: bool(files.of("__cluster_metadata", ".checkpoint")))
    for snapshot in files.of("__cluster_metadata", ".checkpoint")[-1:]:
        output = dump("--cluster-metadata-decoder", files=[snapshot])
        assert "SnapshotHeader" in output
        assert "SnapshotFooter" in output
        assert '"type":"FEATURE_LEVEL_RECORD"' in output


def test_reads_compacted_segments(files: Files, topic_name: contract.TopicName) -> None:
    """And so does a client: the last value of each key at its old offset, whatever was between is gone."""
    if files.preallocated:
        pytest.skip("compacts only where compaction is set to be quick")
    name = topic_name()
    settings = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
    files.client.create_topic(name, 1, settings)
    wait_until(lambda: files.client.partition_count(name) == 1)
    records = [record._replace(key=b"%d" % (n % 10)) for n, record in enumerate(numbered_records(900, size=1_500))]
    positions = files.client.produce(name, records, idempotent=True, codec="gzip", batch_bytes=8_000)
    filler = [Record(b"filler", os.urandom(1_000), (), record.timestamp, 0) for record in records] * 2
    files.client.produce(name, filler)
    wait_until(lambda: files.cleaned_up_to(name) == files.active_segment(name))
    output = dump("--deep-iteration", "--print-data-log", files=files.of(name, ".log"))
    dump("--index-sanity-check", files=files.of(name, "index"))
    last = as_read(records, positions)[-10:]
    with files.client.reader(name, {0: 0}) as reader:
        assert reader.take(10) == last
    assert f"| offset: {last[0].offset} " in output
