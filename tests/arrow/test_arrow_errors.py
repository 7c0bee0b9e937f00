"""Reading what cannot be read: one clear error that names what is wrong."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from penstock.arrow import BadBounds, BadColumn, TopicPartition, read_table, scan, write_table
from penstock.client.errors import BadSetting, ClientError, UnknownTopic, Unreachable


@pytest.mark.parametrize(
    ("options", "error", "problem"),
    [
        ({"columns": ["key", "colour"]}, BadColumn, "name some of key, value, topic"),
        ({"columns": []}, BadColumn, "name some of key, value, topic"),
        ({"value": "money"}, BadColumn, "value='money' is no Arrow type; say e.g. 'utf8'"),
        ({"key": pa.list_(pa.int8())}, BadColumn, "key cannot be read as list<.*>; types are binary, string"),
        ({"value": 7}, BadColumn, "value=7 is neither an Arrow type nor a deserializer"),
        ({"isolation": "committed"}, BadSetting, "isolation='committed' is not one of read_uncommitted"),
        ({"on_data_loss": "ignore"}, BadSetting, "on_data_loss='ignore' is neither"),
        ({"start": "first"}, BadBounds, "start='first' is not 'earliest', 'latest', an offset or a time"),
        ({"start": None}, BadBounds, "start must be"),
        ({"start": -5}, BadBounds, "start=-5: offsets begin at 0"),
        ({"start": True}, BadBounds, "start=True is not"),
        ({"end": datetime(2024, 1, 1)}, BadBounds, r"has no time zone; say e.g. datetime\(..., tzinfo=UTC\)"),
        ({"end": 11}, BadBounds, "-0: end 11 is behind the last stable offset, 10"),
        ({"end": 11, "isolation": "read_uncommitted"}, BadBounds, "-0: end 11 is behind the end of the log, 10"),
        ({"start": 11}, BadBounds, "-0: start 11 is behind the last stable offset, 10"),
        ({"start": 5, "end": 4}, BadBounds, "-0: end 4 is before start 5"),
        ({"start": {0: 1}}, BadBounds, "start says nothing of .*-1"),
        ({"start": {0: 1, 1: 1, 2: 1}}, BadBounds, "start names .*-2, which is not read here"),
        ({"partitions": [0, 4]}, BadBounds, "no such partition: .*-4"),
    ],
)
def test_what_is_refused(bootstrap: str, ten_rows: str, options: Any, error: type[ClientError], problem: str) -> None:
    with pytest.raises(error, match=problem):
        scan(bootstrap, ten_rows, **options)


@pytest.fixture(scope="module")
def ten_rows(bootstrap: str, unique_topic: Any) -> str:
    from penstock.client.wire.admin import Admin

    topic: str = unique_topic("arrow")
    with Admin(bootstrap) as admin:
        admin.topics.create(topic, partitions=2)
    write_table(bootstrap, topic, pa.table({"value": range(20), "to": [row % 2 for row in range(20)]}), partition="to")
    return topic


def test_topics_and_brokers(bootstrap: str, ten_rows: str, unique_topic: Any) -> None:
    missing = unique_topic("missing")
    with pytest.raises(UnknownTopic, match=f"there is no topic '{missing}'"):
        read_table(bootstrap, [ten_rows, missing])
    with pytest.raises(Unreachable, match=r"cannot connect to 127\.0\.0\.1:1"):
        read_table("127.0.0.1:1", ten_rows)
    with pytest.raises(BadBounds, match="no topic is given"):
        read_table(bootstrap, [])
    with pytest.raises(BadBounds, match="partition 0 of which topic"):
        read_table(bootstrap, [ten_rows, ten_rows + "x"][:1] * 2, partitions=[0])
    assert len(read_table(bootstrap, ten_rows, partitions=[TopicPartition(ten_rows, 1)])) == 10


def test_a_reader_knows_its_types(bootstrap: str, ten_rows: str) -> None:
    with pytest.raises(BadColumn, match=r"say value=\(deserializer, arrow_type\)"):
        scan(bootstrap, ten_rows, value=len).reader()
    reader = scan(bootstrap, ten_rows, value=(len, pa.int32()), columns=["value"]).reader()
    assert reader.read_all()["value"].to_pylist() == [8] * 20


def test_a_missing_package_is_named() -> None:
    program = "import sys; sys.modules['numba'] = None; import penstock.arrow"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert "penstock.arrow needs the package numba: pip install 'penstock[arrow]'" in result.stderr


def test_importing_penstock_loads_none_of_it() -> None:
    program = (
        "import sys, penstock, penstock.client.wire.admin; sys.exit('numba' in sys.modules or 'pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
