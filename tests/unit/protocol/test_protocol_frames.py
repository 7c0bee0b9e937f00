"""Frames against hand-written bytes and against kio's headers."""

from __future__ import annotations

import io

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioHeader1
from kio.schema.request_header.v2.header import RequestHeader as KioHeader2
from kio.serial import entity_writer

from penstock.protocol.apis import API, ApiKey
from penstock.protocol.codec import MalformedMessage, decode, join
from penstock.protocol.declaration import Message
from penstock.protocol.frames import (
    RequestHeader,
    encode_request,
    read_request_header,
    request_header_version,
    response_header_version,
    response_parts,
)
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from penstock.protocol.messages.metadata import MetadataRequest
from penstock.protocol.primitives import Part


def response_frame(api_key: int, version: int, response: Message) -> bytes:
    parts: list[Part] = []
    response_parts(api_key, version, 77, response, parts)
    return join(parts)


def test_header_versions_follow_flexibility() -> None:
    assert [request_header_version(ApiKey.METADATA, version) for version in (0, 8, 9, 13)] == [1, 1, 2, 2]
    assert [response_header_version(ApiKey.METADATA, version) for version in (0, 8, 9, 13)] == [0, 0, 1, 1]
    assert [request_header_version(ApiKey.SASL_HANDSHAKE, version) for version in (0, 1)] == [1, 1]


def test_the_response_to_api_versions_always_has_a_header_of_version_0() -> None:
    assert [response_header_version(ApiKey.API_VERSIONS, version) for version in range(5)] == [0] * 5
    assert request_header_version(ApiKey.API_VERSIONS, 3) == 2


def test_a_request_frame_byte_for_byte() -> None:
    request = ApiVersionsRequest(client_software_name="kcat", client_software_version="1")
    body = b"\x05kcat\x02\x31\0"
    head = b"\0\x12\0\x03" + b"\0\0\0\x09" + b"\0\x02me" + b"\0"
    size = (len(head) + len(body)).to_bytes(4, "big")
    assert encode_request(request, 3, 9, "me") == size + head + body


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "größer"])
@pytest.mark.parametrize(("version", "kio_header"), [(1, KioHeader1), (12, KioHeader2)])
def test_request_headers_are_kios(client_id: str | None, version: int, kio_header: type) -> None:
    expected = io.BytesIO()
    fields = {"request_api_key": 3, "request_api_version": version, "correlation_id": 5, "client_id": client_id}
    entity_writer(kio_header)(expected, kio_header(**fields))

    frame = encode_request(MetadataRequest(topics=[]), version, 5, client_id)
    assert frame[4:].startswith(expected.getvalue())
    for buffer in (frame, bytearray(frame), memoryview(frame)):
        header, position = read_request_header(buffer, 4)
        assert header == RequestHeader(3, version, 5, client_id)
        assert position == 4 + len(expected.getvalue())
    assert decode(MetadataRequest, frame, version, position).topics == []


def test_tags_of_a_request_header_are_skipped() -> None:
    frame = b"\0\x03\0\x0c\0\0\0\x05\xff\xff" + b"\x02\0\x01x\x81\x01\x02yz" + b"body"
    header, position = read_request_header(frame, 0)
    assert header == RequestHeader(3, 12, 5, None)
    assert frame[position:] == b"body"


def test_unknown_apis_and_versions_are_left_to_the_caller() -> None:
    assert read_request_header(b"\x03\xe7\0\x01\0\0\0\x05\xff\xff", 0)[0] == RequestHeader(999, 1, 5, None)
    assert read_request_header(b"\0\x03\x03\xe7\0\0\0\x05\xff\xff\0", 0)[0] == RequestHeader(3, 999, 5, None)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\x03\0\x01\0\0\0\x05\xff",  # shorter than any header
        b"\0\x03\0\x01\0\0\0\x05\0\x09abc",  # a client id longer than the frame
        b"\0\x03\0\x01\0\0\0\x05\xff\xfe",  # a client id of -2
        b"\0\x03\0\x0c\0\0\0\x05\xff\xff",  # flexible, but no tags
        b"\0\x03\0\x0c\0\0\0\x05\xff\xff\x01\0\x05x",  # a tag longer than the frame
        b"\0\x03\0\x0c\0\0\0\x05\xff\xff\xff\xff\xff\xff\x07",  # two billion tags
    ],
)
def test_malformed_request_headers(frame: bytes) -> None:
    with pytest.raises(MalformedMessage):
        read_request_header(frame, 0)


def test_response_frames() -> None:
    inflexible = response_frame(ApiKey.API_VERSIONS, 0, ApiVersionsResponse(error_code=35))
    assert inflexible == b"\0\0\0\x0a" + b"\0\0\0\x4d" + b"\0\x23" + b"\0\0\0\0"
    flexible = response_frame(ApiKey.FETCH, 12, FetchResponse())
    assert flexible == b"\0\0\0\x11" + b"\0\0\0\x4d\0" + b"\0\0\0\0" + b"\0\0" + b"\0\0\0\0" + b"\x01" + b"\0"


def test_the_length_of_a_response_counts_its_records() -> None:
    batches = [bytearray(3000), bytearray(2000)]
    partitions = [PartitionData(records=batch) for batch in batches]
    parts: list[Part] = []
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])
    response_parts(ApiKey.FETCH, 12, 77, response, parts)
    frame = join(parts)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert [part for part in parts if any(part is batch for batch in batches)] == batches
    assert decode(FetchResponse, frame, 12, 9).responses[0].partitions[1].records == batches[1]


def test_every_api_can_be_framed() -> None:
    for spec in API.values():
        for version in range(spec.min_version, spec.max_version + 1):
            frame = encode_request(spec.request(), version, 1, "me")
            header, position = read_request_header(frame, 4)
            assert (header.api_key, header.api_version) == (spec.key, version)
            assert decode(spec.request, frame, version, position) == spec.request()


def test_a_client_id_that_is_no_text_is_made_readable() -> None:
    header, position = read_request_header(b"\0\x03\0\x01\0\0\0\x05\0\x02\xc3\x28", 0)
    assert header.client_id == "\ufffd("
    assert position == 12
