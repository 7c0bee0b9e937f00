"""What a codec does at the edges: nulls, defaults, tags, fields that a version cannot carry, records."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.codec import (
    MalformedMessage,
    UnencodableMessage,
    decode,
    decode_from,
    encode,
    encode_parts,
    join,
)
from penstock.protocol.messages.consumer_group_heartbeat import Assignment, ConsumerGroupHeartbeatResponse
from penstock.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from penstock.protocol.messages.group_records import ClassicMemberMetadata, ConsumerGroupMemberMetadataValue
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.protocol.messages.metadata_records import RECORD_TYPES, PartitionChangeRecord, TopicRecord
from penstock.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.protocol.primitives import Buffer, Part


def fetch_response(records: Buffer | Sequence[Buffer] | None) -> FetchResponse:
    partition = PartitionData(records=records, aborted_transactions=None)
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])


class TestForms:
    def test_inflexible(self) -> None:
        request = HeartbeatRequest(group_id="group", generation_id=7, member_id="m", group_instance_id=None)
        assert encode(request, 3) == b"\0\x05group" + b"\0\0\0\x07" + b"\0\x01m" + b"\xff\xff"

    def test_flexible(self) -> None:
        request = HeartbeatRequest(group_id="group", generation_id=7, member_id="m", group_instance_id=None)
        assert encode(request, 4) == b"\x06group" + b"\0\0\0\x07" + b"\x02m" + b"\0" + b"\0"

    def test_a_null_array_and_an_empty_one(self) -> None:
        assert encode(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"
        assert encode(MetadataRequest(topics=[]), 1) == b"\0\0\0\0"
        assert encode(MetadataRequest(topics=None), 9) == b"\0\x01\0\0\0"
        assert decode(MetadataRequest, b"\0\x01\0\0\0", 9).topics is None

    def test_a_nullable_struct(self) -> None:
        absent = encode(ConsumerGroupHeartbeatResponse(assignment=None), 0)
        empty = encode(ConsumerGroupHeartbeatResponse(assignment=Assignment()), 0)
        assert absent[-2:] == b"\xff\0"
        assert empty[-4:] == b"\x01\x01\0\0"

    def test_a_nullable_tagged_struct_is_sent_as_null(self) -> None:
        null = encode(ConsumerGroupMemberMetadataValue(classic_member_metadata=None), 0)
        default = encode(ConsumerGroupMemberMetadataValue(), 0)
        assert null[-4:] == b"\x01\0\x01\0"  # one tag: number 0, of one byte, null
        assert default[-1:] == b"\0"
        assert decode(ConsumerGroupMemberMetadataValue, null, 0).classic_member_metadata is None
        assert decode(ConsumerGroupMemberMetadataValue, default, 0).classic_member_metadata == ClassicMemberMetadata()

    def test_a_metadata_record(self) -> None:
        record = TopicRecord(name="t", topic_id=bytes(range(16)))
        assert encode(record, 0) == b"\x02t" + bytes(range(16)) + b"\0"
        assert RECORD_TYPES[2] is TopicRecord


class TestDefaults:
    def test_every_field_has_one(self) -> None:
        request = FetchRequest()
        assert (request.max_bytes, request.session_epoch, request.topics) == (0x7FFFFFFF, -1, [])
        assert FetchRequest().topics is not FetchRequest().topics

    def test_fields_of_later_versions_get_theirs(self) -> None:
        response = decode(MetadataResponse, encode(MetadataResponse(), 0), 0)
        assert response.controller_id == -1
        assert response.cluster_authorized_operations == -(2**31)

    def test_unknown_names_are_refused(self) -> None:
        with pytest.raises(TypeError):
            HeartbeatRequest(grup_id="g")  # type: ignore[call-arg]

    def test_comparison_and_text(self) -> None:
        assert HeartbeatRequest(group_id="g") == HeartbeatRequest(group_id="g")
        assert HeartbeatRequest(group_id="g") != HeartbeatRequest(group_id="h")
        assert HeartbeatRequest() != FetchRequest()
        assert repr(EpochEndOffset(epoch=3)) == "EpochEndOffset(epoch=3, end_offset=-1)"
        assert "<5000 bytes>" in repr(PartitionProduceData(records=bytes(5000)))
        with pytest.raises(AttributeError):
            HeartbeatRequest().grup_id = "g"  # type: ignore[attr-defined]


class TestTags:
    def test_a_tagged_struct_is_none_when_not_sent(self) -> None:
        partition = PartitionData(diverging_epoch=EpochEndOffset(epoch=4, end_offset=9))
        response = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])
        decoded = decode(FetchResponse, encode(response, 13), 13).responses[0].partitions[0]
        assert decoded.diverging_epoch == EpochEndOffset(epoch=4, end_offset=9)
        assert decoded.current_leader is None

    def test_defaults_are_not_sent(self) -> None:
        plain = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData()])])
        explicit = FetchResponse(
            responses=[FetchableTopicResponse(partitions=[PartitionData(diverging_epoch=EpochEndOffset())])]
        )
        assert encode(plain, 13) == encode(explicit, 13)

    def test_an_empty_array_differs_from_null(self) -> None:
        assert decode(PartitionChangeRecord, encode(PartitionChangeRecord(isr=[]), 0), 0).isr == []
        assert decode(PartitionChangeRecord, encode(PartitionChangeRecord(), 0), 0).isr is None

    def test_unknown_ones_survive(self) -> None:
        sent = HeartbeatRequest(group_id="g")
        sent.unknown_tags = {3: b"three", 200: b""}
        encoded = encode(sent, 4)
        received = decode(HeartbeatRequest, encoded, 4)
        assert received.unknown_tags == {3: b"three", 200: b""}
        assert encode(received, 4) == encoded

    def test_unknown_ones_are_sorted_among_the_known(self) -> None:
        request = FetchRequest(cluster_id="c")
        request.unknown_tags = {9: b"nine", 5: b"five"}
        encoded = encode(request, 12)
        assert encoded.endswith(b"\x03\0\x02\x02c\x05\x04five\x09\x04nine")
        assert decode(FetchRequest, encoded, 12) == request

    def test_an_inflexible_version_has_no_room_for_them(self) -> None:
        request = HeartbeatRequest()
        request.unknown_tags = {3: b""}
        with pytest.raises(KafkaError, match="unknown_tags"):
            encode(request, 3)

    @pytest.mark.parametrize(
        "tags",
        [
            b"\x02\x05\0\x05\0",  # twice the same
            b"\x02\x06\0\x05\0",  # descending
            b"\x01\x05\x09",  # longer than the message
            b"\x01\0\x05\x02c",  # the known tag 0 with a wrong size
            b"\x01",  # missing altogether
            b"\xff\xff\xff\xff\xff\x01",  # a varint too long
        ],
    )
    def test_bad_ones(self, tags: bytes) -> None:
        encoded = encode(FetchRequest(), 12)
        assert encoded[-1:] == b"\0"
        with pytest.raises(MalformedMessage):
            decode(FetchRequest, encoded[:-1] + tags, 12)


class TestVersions:
    def test_a_value_that_a_version_cannot_carry(self) -> None:
        with pytest.raises(KafkaError, match="group_instance_id") as refusal:
            encode(HeartbeatRequest(group_instance_id="static"), 2)
        assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION

    def test_unless_it_may_be_ignored(self) -> None:
        assert encode(FetchRequest(rack_id="r"), 4) == encode(FetchRequest(), 4)

    def test_versions_that_do_not_exist(self) -> None:
        with pytest.raises(KafkaError, match="no version 5"):
            encode(HeartbeatRequest(), 5)
        with pytest.raises(KafkaError, match="no version -1"):
            decode(HeartbeatRequest, b"", -1)

    def test_a_part_is_not_a_message(self) -> None:
        with pytest.raises(TypeError, match="part of a message"):
            encode(FetchTopic(), 4)


class TestWhatCannotBeEncoded:
    @pytest.mark.parametrize(
        ("message", "version"),
        [
            (HeartbeatRequest(group_id=None), 3),  # type: ignore[arg-type]
            (HeartbeatRequest(group_id=None), 4),  # type: ignore[arg-type]
            (HeartbeatRequest(generation_id=2**31), 4),
            (HeartbeatRequest(generation_id="1"), 4),  # type: ignore[arg-type]
            (HeartbeatRequest(group_id="x" * 32768), 3),
            (HeartbeatRequest(group_id="x" * 32768), 4),
            (HeartbeatRequest(group_id="\ud800"), 4),
            (MetadataRequest(topics=None), 0),
            (MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"short")]), 10),
            (MetadataRequest(topics=[HeartbeatRequest()]), 10),  # type: ignore[list-item]
            (FetchRequest(topics=[FetchTopic(partitions=[FetchPartition(partition=None)])]), 4),  # type: ignore[arg-type]
        ],
    )
    def test_is_said(self, message: MetadataRequest, version: int) -> None:
        with pytest.raises(UnencodableMessage, match=type(message).__name__):
            encode(message, version)


class TestRecords:
    def test_decoded_without_a_copy(self) -> None:
        batch = bytes(range(200)) * 10
        data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=1, records=batch)])
        encoded = bytearray(encode(ProduceRequest(acks=-1, topic_data=[data]), 9))
        records = decode(ProduceRequest, encoded, 9).topic_data[0].partition_data[0].records
        assert isinstance(records, memoryview)
        assert bytes(records) == batch
        encoded[encoded.index(batch)] = 77
        assert records[0] == 77

    def test_encoded_without_a_copy(self) -> None:
        batch = bytearray(5000)
        parts: list[Part] = []
        encode_parts(fetch_response(batch), 12, parts)
        assert [part is batch for part in parts] == [False, True, False]
        assert join(parts) == encode(fetch_response(bytes(5000)), 12)

    def test_several_buffers_in_a_row(self) -> None:
        pieces: list[bytes | bytearray | memoryview] = [b"a" * 3000, memoryview(b"b" * 4), bytearray(b"c" * 2000)]
        whole = b"".join(pieces)
        for version in (4, 12):
            assert encode(fetch_response(pieces), version) == encode(fetch_response(whole), version)
        assert encode(fetch_response([b"a", b"b"]), 12) == encode(fetch_response(b"ab"), 12)

    def test_null_and_empty(self) -> None:
        for version in (4, 12):
            for records in (None, b""):
                decoded = decode(FetchResponse, encode(fetch_response(records), version), version)
                assert decoded.responses[0].partitions[0].records == records


class TestLengths:
    def test_a_count_is_checked_before_anything_is_made(self) -> None:
        with pytest.raises(MalformedMessage, match="topics has length 2147483647, but only 10 bytes are left"):
            decode(MetadataRequest, b"\x7f\xff\xff\xff" + bytes(10), 0)
        with pytest.raises(MalformedMessage, match="topics has length"):
            decode(MetadataRequest, b"\xff\xff\xff\xff\x0f" + bytes(10), 9)

    @pytest.mark.parametrize(("elements_max", "is_read"), [(11, True), (10, False)])
    def test_all_arrays_together_have_a_limit(self, elements_max: int, is_read: bool) -> None:
        partitions = [PartitionProduceData(index=number) for number in range(4)]
        request = ProduceRequest(topic_data=[TopicProduceData(name=name, partition_data=partitions) for name in "ab"])
        request.unknown_tags = {7: b"seven"}
        data = encode(request, 9)
        if is_read:
            assert decode_from(ProduceRequest, data, 9, 0, elements_max)[0] == request
        else:
            with pytest.raises(MalformedMessage, match="elements"):
                decode_from(ProduceRequest, data, 9, 0, elements_max)

    def test_negative_ones(self) -> None:
        with pytest.raises(MalformedMessage, match="topics has length -1"):
            decode(MetadataRequest, b"\xff\xff\xff\xff", 0)
        with pytest.raises(MalformedMessage, match="topics has length -2"):
            decode(MetadataRequest, b"\xff\xff\xff\xfe", 1)
        with pytest.raises(MalformedMessage, match="group_id has length -1"):
            decode(HeartbeatRequest, b"\0", 4)

    def test_a_string_longer_than_kafka_allows(self) -> None:
        longest = HeartbeatRequest(group_id="x" * 32767)
        assert decode(HeartbeatRequest, encode(longest, 4), 4) == longest
        with pytest.raises(MalformedMessage, match="32768"):
            decode(HeartbeatRequest, b"\x81\x80\x02" + b"x" * 32768 + bytes(10), 4)

    def test_text_that_is_no_utf8(self) -> None:
        with pytest.raises(MalformedMessage, match="utf-8"):
            decode(HeartbeatRequest, b"\0\x02\xc3\x28" + bytes(20), 0)

    def test_what_follows(self) -> None:
        encoded = encode(HeartbeatRequest(group_id="g"), 4)
        message, position = decode_from(HeartbeatRequest, encoded + b"next", 4, 0)
        assert (message.group_id, position) == ("g", len(encoded))
        with pytest.raises(MalformedMessage, match="4 bytes too many"):
            decode(HeartbeatRequest, encoded + b"next", 4)
