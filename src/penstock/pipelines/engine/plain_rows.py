"""Rows of Spark as previews and tests show them: values of JSON, with times and binary values as text.

A TIMESTAMP is an instant. It is shown in UTC with a `Z`, whatever the zone of this machine is, and compared as an
instant. PySpark would return it as a datetime in the zone of this process, and fail if its year there is 0 or 10000. So
Spark converts it to a TIMESTAMP_NTZ first, in the zone of the session, which is UTC for pipelines.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


class Instant(str):
    """The text of a TIMESTAMP."""

    __slots__ = ()

    def is_same(self, other: Any) -> bool:
        """Whether the other is a text of the same instant."""
        if not isinstance(other, str):
            return False
        mine, others = instant(self), instant(other)
        return self == other if mine is None or others is None else mine == others


def instant(text: str) -> datetime | None:
    """What a text in ISO 8601 says, which is UTC if it names no zone; None for another text."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def plain_rows(frame: DataFrame) -> list[dict[str, Any]]:
    """All rows of a table."""
    kind = frame.schema
    rows = frame.select(*(_in_utc(field.name, field.dataType) for field in kind.fields)).collect()
    return [_plain(with_instants(row.asDict(recursive=True), kind)) for row in rows]


def with_instants(value: Any, kind: DataType) -> Any:
    """A value of this type, as a Python value or parsed from JSON, whose TIMESTAMPs are `Instant`."""
    from pyspark.sql.types import ArrayType, MapType, StructType, TimestampType

    if isinstance(kind, TimestampType):
        if isinstance(value, datetime):
            return Instant(f"{value.isoformat()}Z")
        return Instant(value) if isinstance(value, str) else value
    if isinstance(kind, StructType) and isinstance(value, dict):
        kinds = {field.name: field.dataType for field in kind.fields}
        return {name: with_instants(each, kinds[name]) if name in kinds else each for name, each in value.items()}
    if isinstance(kind, ArrayType) and isinstance(value, list):
        return [with_instants(each, kind.elementType) for each in value]
    if isinstance(kind, MapType) and isinstance(value, dict):
        return {
            key if isinstance(key, str) else with_instants(key, kind.keyType): with_instants(each, kind.valueType)
            for key, each in value.items()
        }
    return value


def text_of(value: Any) -> str | None:
    return bytes(value).decode(errors="replace") if isinstance(value, (bytes, bytearray)) else value


def _in_utc(name: str, kind: DataType) -> Column:
    from pyspark.sql import functions as f

    column = f.col(f"`{name.replace('`', '``')}`")
    other = _without_zone(kind)
    return column if other == kind else column.cast(other).alias(name)


def _without_zone(kind: DataType) -> DataType:
    """The type with TIMESTAMP_NTZ in the place of TIMESTAMP."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType, TimestampNTZType, TimestampType

    if isinstance(kind, TimestampType):
        return TimestampNTZType()
    if isinstance(kind, StructType):
        return StructType([StructField(each.name, _without_zone(each.dataType), each.nullable) for each in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_without_zone(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(_without_zone(kind.keyType), _without_zone(kind.valueType), kind.valueContainsNull)
    return kind


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(sep="T")
    if isinstance(value, (bytes, bytearray)):
        return text_of(value)
    if isinstance(value, dict):
        return {_plain(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)
