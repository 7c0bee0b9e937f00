"""Metadata transactions and records that are not served, against a history without them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import EMPTY_IMAGE, MetadataImage, ResourceType
from penstock.metadata.serde import decode_record, encode_record
from penstock.metadata.snapshot import QuorumConfiguration, decode_snapshot, encode_snapshot
from penstock.metadata.unserved import UnservedRecord
from penstock.protocol.declaration import Message
from penstock.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
)
from penstock.protocol.primitives import uvarint

LEVEL = 30

configs: st.SearchStrategy[Message] = st.builds(
    ConfigRecord,
    resource_type=st.just(int(ResourceType.TOPIC)),
    resource_name=st.sampled_from("abc"),
    name=st.sampled_from(["retention.ms", "segment.bytes"]),
    value=st.none() | st.sampled_from(["1", "2", "3"]),
)
features: st.SearchStrategy[Message] = st.builds(
    FeatureLevelRecord, name=st.sampled_from(["share.version", "later.version"]), feature_level=st.integers(0, 2)
)
# Types from 30 on are unknown; so are versions from 9 on.
unserved: st.SearchStrategy[Message] = st.builds(
    lambda head, body: UnservedRecord(value=b"".join(map(uvarint, head)) + body),
    st.tuples(st.just(1), st.integers(30, 300), st.integers(0, 300))
    | st.tuples(st.just(1), st.sampled_from([0, 3, 5, 12]), st.integers(9, 300))
    | st.tuples(st.integers(2, 300)),
    st.binary(max_size=20),
)
plain = st.one_of(configs, features, unserved, st.just(NoOpRecord()))
# A piece of a history: its records, and how it ends if it is a transaction (None: it is not).
pieces = st.lists(st.tuples(st.lists(plain, max_size=5), st.sampled_from([None, "end", "abort"])), max_size=6)


def replayed(image: MetadataImage, records: list[Message]) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(decode_record(encode_record(record, LEVEL)))
    return delta.apply(image.offset + len(records), 1, 1)


def written(history: list[tuple[list[Message], str | None]]) -> list[Message]:
    """As a controller writes it."""
    log: list[Message] = []
    for records, ending in history:
        if ending is None:
            log += records
        else:
            last = EndTransactionRecord() if ending == "end" else AbortTransactionRecord(reason=None)
            log += [BeginTransactionRecord(name="t"), *records, last]
    return log


def in_effect(log: list[Message]) -> tuple[list[Message], bool]:
    """The model: what a transaction holds is added at its end. Also whether one is open."""
    held: list[Message] | None = None
    effective: list[Message] = []
    for record in log:
        if isinstance(record, BeginTransactionRecord):
            held = []
        elif isinstance(record, EndTransactionRecord):
            effective, held = effective + (held or []), None
        elif isinstance(record, AbortTransactionRecord):
            held = None
        elif held is not None:
            held.append(record)
        else:
            effective.append(record)
    return effective, held is not None


def through_a_snapshot(image: MetadataImage) -> MetadataImage:
    batches = encode_snapshot(
        image.to_records(),
        metadata_version=LEVEL,
        quorum=QuorumConfiguration(),
        epoch=1,
        last_contained_timestamp_ms=1,
        now_ms=1,
    )
    decoded = decode_snapshot(b"".join(batches))
    return replayed(EMPTY_IMAGE, decoded.records)


@given(pieces, st.lists(st.integers(0, 60), max_size=6))
def test_a_transaction_is_whole_or_nothing_wherever_the_log_is_cut(
    history: list[tuple[list[Message], str | None]], cuts: list[int]
) -> None:
    log = written(history)
    image = EMPTY_IMAGE
    for start, end in pairwise([0, *sorted(min(cut, len(log)) for cut in cuts), len(log)]):
        image = replayed(image, log[start:end])
        effective, is_open = in_effect(log[:end])
        expected = replayed(EMPTY_IMAGE, effective)
        assert (image.features, image.configs, image.unserved) == (
            expected.features,
            expected.configs,
            expected.unserved,
        )
        assert (image.transaction is not None) == is_open
        assert image.offset == end - 1


@given(st.lists(plain, max_size=30))
def test_unserved_records_pass_snapshots_byte_for_byte(records: list[Message]) -> None:
    image = replayed(EMPTY_IMAGE, records)
    sent = [record.value for record in records if isinstance(record, UnservedRecord)]
    for _ in range(2):
        assert [record.value for record in image.unserved] == sent
        again = through_a_snapshot(image)
        assert again.same_content(image)
        image = again
