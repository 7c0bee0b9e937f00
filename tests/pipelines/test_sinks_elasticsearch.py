"""The sink for Elasticsearch on real servers, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from elasticsearch_server import SearchServer, elasticsearch_server, opensearch_server
from penstock.pipelines.sinks import ORIGIN, Destination, SinkUnavailable
from penstock.pipelines.sinks.elasticsearch import connection_of, write_bulk
from penstock.pipelines.sinks.tasks import Receipt, Task
from penstock.pipelines.spec.problems import PipelineFailed

ELSEWHERE = "http://127.0.0.1:1"


@pytest.fixture(scope="module", params=["elasticsearch", pytest.param("opensearch", marks=pytest.mark.soak)])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SearchServer]:
    if request.param == "opensearch":
        with opensearch_server() as server:
            yield server
    else:
        with elasticsearch_server(str(tmp_path_factory.mktemp("elasticsearch"))) as server:
            yield server


def write(hosts: str, index: str, *rows: tuple[str, dict[str, Any]]) -> Receipt:
    columns = [[id_ for id_, _ in rows], [json.dumps(row) for _, row in rows], [f"t-0-{n}" for n in range(len(rows))]]
    batch = pa.RecordBatch.from_arrays([pa.array(each, pa.string()) for each in columns], ["id", "document", ORIGIN])
    connection = connection_of(Destination("shop", "orders", "search", options={"hosts": hosts}))
    return write_bulk(connection, "search", index, (0.0,), Task(0, 0), iter([batch]))


@pytest.mark.timeout(600)
def test_documents(server: SearchServer) -> None:
    """One test, because it is the start of the server that takes time."""
    rows = ("a", {"number": 1, "at": "2026-05-01T12:30:15.250000Z"}), ("ž/1", {"number": 2}), ("a", {"number": 3})

    # A batch that is written twice is there once; of a key the last row; a dead host is passed over.
    for hosts in (server.address, *[f"{ELSEWHERE},{server.address}"] * 4):
        assert write(hosts, "orders", *rows).refused == []
    assert server.documents("orders") == {"a": {"number": 3}, "ž/1": {"number": 2}}
    assert write(server.address, "orders", ("a", {"number": 4})).refused == []
    assert server.documents("orders")["a"] == {"number": 4}

    # A document that does not fit is refused, the others are written.
    (refused,) = write(server.address, "orders", ("b", {"number": "many"}), ("c", {"number": 5})).refused
    assert refused.origin == "t-0-0"
    assert "failed to parse field [number] of type [long]" in refused.reason
    assert 'For input string: "many"' in refused.reason
    assert sorted(server.documents("orders")) == ["a", "c", "ž/1"]

    # So is one whose id the server would refuse together with all others of the request.
    long = "ž" * 256 + "x"
    refused, empty = sorted(
        write(server.address, "orders", (long, {}), ("", {}), (long[:-1], {"number": 6})).refused,
        key=lambda each: each.origin,
    )
    assert (refused.origin, refused.reason) == ("t-0-0", "its key has 513 bytes, more than the 512 of an _id")
    assert empty.origin == "t-0-1"
    assert server.documents("orders")[long[:-1]] == {"number": 6}

    # What is wrong with the index is not the fault of a document.
    with pytest.raises(PipelineFailed, match=r"400 .*must be lowercase"):
        write(server.address, "Orders", ("a", {}))
    with auto_create_index(server, "false"), pytest.raises(PipelineFailed, match=r"404 no such index \[others\]"):
        write(server.address, "others", ("a", {}))
    with blocked(server, "read_only"), pytest.raises(PipelineFailed, match=r"403 .*read-only") as told:
        write(server.address, "orders", ("a", {}))
    assert not isinstance(told.value, SinkUnavailable)

    # A full disk is waited for.
    with blocked(server, "read_only_allow_delete"), pytest.raises(SinkUnavailable, match="flood-stage watermark"):
        write(server.address, "orders", ("a", {}))


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_server_that_is_away(server: SearchServer) -> None:
    write(server.address, "away", ("a", {"number": 1}))
    server.kill()
    with pytest.raises(SinkUnavailable, match="Connection refused"):
        write(server.address, "away", ("b", {"number": 2}))
    server.start()
    assert write(server.address, "away", ("b", {"number": 2})).refused == []
    assert sorted(server.documents("away")) == ["a", "b"]


@contextmanager
def auto_create_index(server: SearchServer, value: str) -> Iterator[None]:
    server.request("PUT", "_cluster/settings", {"persistent": {"action.auto_create_index": value}})
    yield
    server.request("PUT", "_cluster/settings", {"persistent": {"action.auto_create_index": None}})


@contextmanager
def blocked(server: SearchServer, block: str) -> Iterator[None]:
    server.request("PUT", "orders/_settings", {f"index.blocks.{block}": True})
    yield
    server.request("PUT", "orders/_settings", {f"index.blocks.{block}": None})
