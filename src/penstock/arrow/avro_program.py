"""Compiles Avro schemas to programs of `avro_kernel`: from the schema of a writer to the columns of a reader.

The reader's schema determines the columns (`Column`, a tree as deep as the schema). Each writer's schema is compiled to
a program that fills them by Avro's rules of schema resolution: fields by name or alias in the writer's order, promoted
numbers, skipped fields, and defaults, which are read from a constant as if they stood in the record. The programs of
all writers share one table.

    int, long, float, double, boolean, string, bytes, fixed     the Arrow type of that name
    enum                                                        string
    record, array, map                                          struct, list, map
    [null, type]                                                the type, with nulls
    other unions                                                struct with a field for each type: member0, member1, ...
    date, time, timestamp, local-timestamp, decimal, uuid       date32, time32/64, timestamp, decimal128/256, string

A record that contains itself has no columns, and is refused.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrow import avro_kernel as ops

_PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "null": pa.null(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
_PER_SECOND = {"millis": 1000, "micros": 1_000_000, "nanos": 1_000_000_000}
_NUMBERS = {
    ("int", "int"): ops.INT,
    ("int", "long"): ops.LONG,
    ("long", "long"): ops.LONG,
    ("int", "float"): ops.INT_TO_FLOAT,
    ("long", "float"): ops.INT_TO_FLOAT,
    ("int", "double"): ops.INT_TO_DOUBLE,
    ("long", "double"): ops.INT_TO_DOUBLE,
    ("float", "float"): ops.FIXED,
    ("float", "double"): ops.FLOAT_TO_DOUBLE,
    ("double", "double"): ops.FIXED,
    ("boolean", "boolean"): ops.BOOLEAN,
}
_SIZES = {"float": 4, "double": 8, "boolean": 1}
_DECIMAL128_DIGITS = 38
_NO_COLUMN = -1
_COLUMNS_MAX = 10_000
_OPERATIONS_MAX = 200_000


class Unreadable(ValueError):
    """A schema has no columns, or a writer's cannot be read with the reader's."""


class TooLarge(Exception):
    """Ends the compilation, also within a branch of a union that need not be readable."""


@dataclass(slots=True)
class Column:
    """A value of the reader's schema, and where it goes."""

    avro: Any  # without its null
    kind: str
    type: Any
    number: int
    width: int  # bytes of a value; 0 if it has offsets, or no values
    offsets: bool
    nullable: bool
    path: str
    children: list[Column] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)


class Names:
    """Named types of one schema."""

    def __init__(self, schema: Any) -> None:
        self._named: dict[str, Any] = {}
        self._collect(schema)

    def _collect(self, schema: Any) -> None:
        if isinstance(schema, list):
            for each in schema:
                self._collect(each)
        elif isinstance(schema, dict):
            self._named.update(schema.get("__named_schemas", {}))  # fastavro's, with those that are referred to
            if "name" in schema:
                self._named.setdefault(schema["name"], schema)
            for each in schema.get("fields", ()):
                self._collect(each["type"])
            for name in ("items", "values", "type"):
                if isinstance(schema.get(name), (dict, list)):
                    self._collect(schema[name])

    def of(self, schema: Any) -> Any:
        """The definition: a list (a union) or a dict whose type is a plain word."""
        while True:
            if isinstance(schema, list):
                return schema
            if isinstance(schema, str):
                if schema in _PRIMITIVES:
                    return {"type": schema}
                if schema not in self._named:
                    raise Unreadable(f"unknown type {schema}")
                schema = self._named[schema]
            elif isinstance(schema["type"], str) and (
                schema["type"] in _PRIMITIVES or schema["type"] in ("record", "error", "enum", "fixed", "array", "map")
            ):
                return schema
            else:
                schema = schema["type"]


class Compiler:
    """The columns of a reader's schema, and the programs of its writers."""

    def __init__(self, reader: Any) -> None:
        """`reader`: parsed by fastavro, so that names are full."""
        self._names = Names(reader)
        self._writer_names = self._names
        self.columns: list[Column] = []
        self.table: list[tuple[int, int, int, int]] = []
        self.paths: list[str] = []
        self.tables: list[int] = []
        self.constants = bytearray()
        self._emitted = 0
        self.root = self._column(reader, "", (), nullable=True)
        self._nulls(self.root)
        self._emit(ops.DEFAULT_BEGIN, first=0, second=0)  # whatever the row has is not read
        self._emit(ops.END)

    null_program = 0
    """Makes a null row."""

    def compile(self, writer: Any) -> int:
        """The address of the program for a writer's schema; Unreadable if there is none."""
        self._writer_names = Names(writer)
        self._emitted = 0
        size = len(self.table)
        try:
            self._value(writer, self.root, ())
            self._emit(ops.END)
        except (Unreadable, TooLarge, RecursionError) as error:
            del self.table[size:], self.paths[size:]
            raise Unreadable(str(error)) from None
        return size

    def arrays(self) -> tuple[Any, Any, Any]:
        """The table, the tables of unions and enums, and the constants, for the kernel."""
        return (
            np.array(self.table, np.int64),
            np.array(self.tables or [0], np.int64),
            np.frombuffer(bytes(self.constants) or b"\0", np.uint8),
        )

    # -- Columns.

    def _column(self, schema: Any, path: str, above: tuple[str, ...], *, nullable: bool = False) -> Column:
        found = self._names.of(schema)
        if isinstance(found, list):
            others = [each for each in found if self._names.of(each) != {"type": "null"}]
            nullable = nullable or len(others) < len(found)
            if len(others) == 1:
                return self._column(others[0], path, above, nullable=nullable)
            return self._members(others, path, above, nullable)
        kind = "record" if found["type"] == "error" else found["type"]
        column = self._new(found, kind, path, nullable)
        if kind == "record":
            if found["name"] in above:
                raise Unreadable(f"{path or 'the record'}: {found['name']} contains itself, which no column can")
            if len(self.columns) > _COLUMNS_MAX:
                raise Unreadable(f"the schema has more than {_COLUMNS_MAX} columns")
            inside = (*above, found["name"])
            column.children = [
                self._column(each["type"], _joined(path, each["name"]), inside) for each in found["fields"]
            ]
            names = [each["name"] for each in found["fields"]]
            column.type = pa.struct(
                [pa.field(name, each.type) for name, each in zip(names, column.children, strict=True)]
            )
        elif kind == "array":
            column.children = [self._column(found["items"], f"{path}[]", above)]
            column.type = pa.list_(pa.field("element", column.children[0].type))
        elif kind == "map":
            key = self._new({"type": "string"}, "string", f"{path}.key", False)
            value = self._column(found["values"], f"{path}[]", above)
            column.children = [key, value]
            column.type = pa.map_(pa.string(), value.type)
        return column

    def _members(self, schemas: list[Any], path: str, above: tuple[str, ...], nullable: bool) -> Column:
        column = self._new(schemas, "union", path, nullable)
        column.children = [
            self._column(each, f"{path}<{index}>", above, nullable=True) for index, each in enumerate(schemas)
        ]
        column.type = pa.struct([pa.field(f"member{index}", each.type) for index, each in enumerate(column.children)])
        return column

    def _new(self, found: Any, kind: str, path: str, nullable: bool) -> Column:
        kind_of_value, width, offsets = _layout(found, kind)
        symbols = list(found["symbols"]) if kind == "enum" else []
        column = Column(found, kind, kind_of_value, len(self.columns), width, offsets, nullable, path, symbols=symbols)
        self.columns.append(column)
        return column

    # -- Programs.

    def _emit(self, operation: int, column: int = 0, first: int = 0, second: int = 0, path: str = "") -> int:
        self._emitted += 1
        if self._emitted > _OPERATIONS_MAX:  # types that are used twice in types that are used twice, and so on
            raise TooLarge("the schema is too large to be read")
        self.table.append((operation, column, first, second))
        self.paths.append(path)
        return len(self.table) - 1

    def _patch(self, address: int, first: int) -> None:
        operation, column, _, second = self.table[address]
        self.table[address] = (operation, column, first, second)

    def _nulls(self, column: Column) -> None:
        """A null in the column, and placeholders in those that have a value for each of its own."""
        if column.offsets:
            self._emit(ops.NULL_BINARY, column.number, path=column.path)
            return
        self._emit(ops.NULL, column.number, path=column.path)
        for each in column.children:
            self._nulls(each)

    def _value(self, writer: Any, column: Column, above: tuple[str, ...]) -> None:
        written = self._writer_names.of(writer)
        if isinstance(written, list):
            self._union(written, column, above)
        elif written["type"] == "null" and column.nullable:
            self._nulls(column)
        elif column.kind == "union":
            self._member(written, column, above)
        elif column.kind in ("record", "array", "map"):
            self._nested(written, column, above)
        else:
            self._leaf(written, column)

    def _union(self, branches: list[Any], column: Column, above: tuple[str, ...]) -> None:
        table = self._branches(branches, column.path)
        ends, problem = [], None
        for index, branch in enumerate(branches):
            start = len(self.table)
            try:
                self._value(branch, column, above)
            except Unreadable as error:
                del self.table[start:], self.paths[start:]
                problem = error
                continue
            self.tables[table + index] = start
            ends.append(self._emit(ops.JUMP))
        if not ends and problem is not None:
            raise problem
        for address in ends:
            self._patch(address, len(self.table))

    def _branches(self, branches: list[Any], path: str) -> int:
        table = len(self.tables)
        self.tables += [-1] * len(branches)
        self._emit(ops.UNION, first=table, second=len(branches), path=path)
        return table

    def _member(self, written: Any, column: Column, above: tuple[str, ...]) -> None:
        """The member of the reader's union that takes the value: of the same type, or else the first that can."""
        same = [each for each in column.children if _same(written, each.avro)]
        for chosen in [*same, *(each for each in column.children if each not in same)]:
            start = len(self.table)
            self._emit(ops.STRUCT, column.number, path=column.path)
            try:
                for each in column.children:
                    if each is chosen:
                        self._value(written, each, above)
                    else:
                        self._nulls(each)
            except Unreadable:
                del self.table[start:], self.paths[start:]
                continue
            return
        raise self._mismatch(written, column)

    def _nested(self, written: Any, column: Column, above: tuple[str, ...]) -> None:
        kind = "record" if written["type"] == "error" else written["type"]
        if kind != column.kind:
            raise self._mismatch(written, column)
        if kind == "record":
            self._record(written, column, above)
            return
        if len(above) >= ops.DEPTH_MAX:
            raise Unreadable(f"{column.path}: more than {ops.DEPTH_MAX} arrays and maps inside each other")
        self._emit(ops.LIST_BEGIN)
        if kind == "array":
            items, has_bytes = written["items"], self._has_bytes(written["items"], ())
        else:
            items, has_bytes = written["values"], True
        head = self._emit(ops.LIST_NEXT, column.number, second=int(has_bytes), path=column.path)
        if kind == "map":
            self._emit(ops.BINARY, column.children[0].number, first=1, path=column.children[0].path)
        self._value(items, column.children[-1], (*above, "[]"))
        self._emit(ops.JUMP, first=head)
        self._patch(head, len(self.table))

    def _record(self, written: Any, column: Column, above: tuple[str, ...]) -> None:
        if not _named_alike(written, column.avro):
            raise Unreadable(f"{column.path or 'the record'}: {written['name']} is not {column.avro['name']}")
        self._emit(ops.STRUCT, column.number, path=column.path)
        wanted = dict(zip((each["name"] for each in column.avro["fields"]), column.children, strict=True))
        aliases = {alias: each["name"] for each in column.avro["fields"] for alias in each.get("aliases", ()) if alias}
        fields = {each["name"]: each for each in column.avro["fields"]}
        for each in written["fields"]:
            name = each["name"] if each["name"] in fields else aliases.get(each["name"], "")
            child = wanted.pop(name, None)
            if child is None:
                self._skip(each["type"], _joined(column.path, each["name"]), ())
            else:
                self._value(each["type"], child, above)
        for name, child in wanted.items():
            self._default(fields[name], child)

    def _default(self, of_field: Any, column: Column) -> None:
        if "default" not in of_field:
            raise Unreadable(f"{column.path}: the writer has no such field, and the reader no default for it")
        start = len(self.constants)
        try:
            self.constants += self._encoded(of_field["type"], of_field["default"])
        except (TypeError, ValueError, KeyError, AttributeError, struct.error):
            raise Unreadable(f"{column.path}: the default {of_field['default']!r:.80} does not have its type") from None
        self._emit(ops.DEFAULT_BEGIN, first=start, second=len(self.constants))
        names, self._writer_names = self._writer_names, self._names
        try:
            self._value(of_field["type"], column, ())
        finally:
            self._writer_names = names
        self._emit(ops.DEFAULT_END)

    def _encoded(self, schema: Any, value: Any) -> bytes:
        """A default, which the schema has as JSON, in Avro; bytes are text of the code points 0 to 255."""
        found = self._names.of(schema)
        if isinstance(found, list):
            index = next(index for index, each in enumerate(found) if _fits(self._names.of(each), value))
            return _zigzag(index) + self._encoded(found[index], value)
        kind = found["type"]
        if kind in ("record", "error"):
            fields = ((each, value.get(each["name"], each.get("default"))) for each in found["fields"])
            return b"".join(self._encoded(each["type"], inside) for each, inside in fields)
        if kind == "array":
            items = b"".join(self._encoded(found["items"], each) for each in value)
        elif kind == "map":
            items = b"".join(_text(key) + self._encoded(found["values"], each) for key, each in value.items())
        else:
            return _encoded_leaf(found, value)
        return (_zigzag(len(value)) + items if value else b"") + b"\0"

    def _leaf(self, written: Any, column: Column) -> None:
        kind, wanted, path = written["type"], column.avro, column.path
        number = column.number
        if (kind, column.kind) in _NUMBERS:
            if pa.types.is_time(column.type):
                self._emit(ops.TIME_OF_DAY, number, 86_400 * _units_in_a_second(written, wanted), path=path)
            first, second = (_SIZES[kind], 0) if kind in _SIZES else _scaling(written, wanted)
            self._emit(_NUMBERS[kind, column.kind], number, first, second, path)
        elif column.kind == "null" and kind == "null":
            self._emit(ops.NULL, number, path=path)
        elif kind == "enum" and column.kind == "enum":
            self._enum(written, column)
        elif pa.types.is_decimal(column.type) and kind in ("bytes", "fixed"):
            if written.get("logicalType") == "decimal" and written.get("scale", 0) != wanted.get("scale", 0):
                raise Unreadable(f"{path}: the scale {written.get('scale', 0)} is not {wanted.get('scale', 0)}")
            largest = 10 ** wanted["precision"] - 1
            self._emit(ops.DECIMAL_BOUNDS, number, len(self.constants), path=path)
            for bound in (largest, -largest):
                self.constants += bound.to_bytes(column.width, "big", signed=True)
            operation = ops.FIXED_DECIMAL if kind == "fixed" else ops.DECIMAL
            self._emit(operation, number, written.get("size", 0), column.width, path)
        elif kind == "fixed" and column.kind == "fixed" and written["size"] == wanted["size"]:
            self._emit(ops.FIXED, number, written["size"], path=path)
        elif kind in ("string", "bytes") and column.kind in ("string", "bytes"):
            self._emit(ops.BINARY, number, int(column.kind == "string"), path=path)
        else:
            raise self._mismatch(written, column)

    def _enum(self, written: Any, column: Column) -> None:
        if not _named_alike(written, column.avro):
            raise Unreadable(f"{column.path}: {written['name']} is not {column.avro['name']}")
        places = {symbol: index for index, symbol in enumerate(column.symbols)}
        default = places.get(column.avro.get("default", ""), -1)
        table = len(self.tables)
        self.tables += [places.get(symbol, default) for symbol in written["symbols"]]
        self._emit(ops.ENUM, column.number, table, len(written["symbols"]), column.path)

    def _skip(self, writer: Any, path: str, above: tuple[str, ...]) -> None:
        written = self._writer_names.of(writer)
        if isinstance(written, list):
            table, ends = self._branches(written, path), []
            for index, branch in enumerate(written):
                self.tables[table + index] = len(self.table)
                self._skip(branch, path, above)
                ends.append(self._emit(ops.JUMP))
            for address in ends:
                self._patch(address, len(self.table))
            return
        kind = written["type"]
        if kind in ("int", "long", "enum"):
            self._emit(ops.SKIP_NUMBER, path=path)
        elif kind in ("string", "bytes"):
            self._emit(ops.SKIP_BINARY, path=path)
        elif kind in ("float", "double", "boolean", "fixed"):
            self._emit(ops.SKIP, first=_SIZES.get(kind) or written["size"], path=path)
        elif kind in ("record", "error"):
            if written["name"] in above:
                raise Unreadable(f"{path}: {written['name']} contains itself, and cannot be skipped")
            for each in written["fields"]:
                self._skip(each["type"], path, (*above, written["name"]))
        elif kind in ("array", "map"):
            self._skip_items(written, path, above)

    def _skip_items(self, written: Any, path: str, above: tuple[str, ...]) -> None:
        if len(above) >= ops.DEPTH_MAX:
            raise Unreadable(f"{path}: more than {ops.DEPTH_MAX} arrays and maps inside each other")
        self._emit(ops.LIST_BEGIN)
        is_map = written["type"] == "map"
        has_bytes = is_map or self._has_bytes(written["items"], ())
        head = self._emit(ops.LIST_NEXT, _NO_COLUMN, second=int(has_bytes), path=path)
        if is_map:
            self._emit(ops.SKIP_BINARY, path=path)
        self._skip(written["values" if is_map else "items"], path, (*above, "[]"))
        self._emit(ops.JUMP, first=head)
        self._patch(head, len(self.table))

    def _has_bytes(self, schema: Any, above: tuple[str, ...]) -> bool:
        """Whether every value of a writer's type has at least one byte."""
        found = self._writer_names.of(schema)
        if isinstance(found, list):
            return True
        if found["type"] in ("record", "error"):
            inside = (*above, found["name"])
            return found["name"] in above or any(self._has_bytes(each["type"], inside) for each in found["fields"])
        return bool(found["type"] != "null" and found.get("size", 1) > 0)

    def _mismatch(self, written: Any, column: Column) -> Unreadable:
        return Unreadable(f"{column.path or 'the value'}: {_shown(written)} is not {_shown(column.avro)}")


def _layout(found: Any, kind: str) -> tuple[Any, int, bool]:
    """The Arrow type of a value, the bytes of one, and whether it has offsets."""
    logical = found.get("logicalType") if isinstance(found, dict) else None
    if kind in ("bytes", "fixed") and logical == "decimal":
        precision, scale = found["precision"], found.get("scale", 0)
        if precision <= _DECIMAL128_DIGITS:
            return pa.decimal128(precision, scale), 16, False
        if precision <= 2 * _DECIMAL128_DIGITS:
            return pa.decimal256(precision, scale), 32, False
        raise Unreadable(f"decimals of {precision} digits have no column; at most {2 * _DECIMAL128_DIGITS}")
    if kind == "fixed":
        if logical == "uuid" and found["size"] == 16:
            return pa.string(), 16, False
        return pa.binary(found["size"]), found["size"], False
    if kind == "enum":
        return pa.string(), 4, False
    if kind in ("array", "map"):
        return None, 0, True
    if kind in ("record", "union"):
        return None, 0, False
    wanted = _LOGICAL.get((kind, str(logical)), _PRIMITIVES[kind])
    if kind in ("string", "bytes"):
        return wanted, 0, True
    return wanted, {"boolean": 1, "int": 4, "float": 4, "long": 8, "double": 8, "null": 0}[kind], False


def _scaling(written: Any, wanted: Any) -> tuple[int, int]:
    """Factor and divisor from the writer's unit of time to the reader's."""
    units = [_PER_SECOND.get(str(each.get("logicalType", "")).rpartition("-")[2]) for each in (written, wanted)]
    if written["type"] != "long" or None in units or units[0] == units[1]:
        return 1, 1
    before, after = (int(each or 1) for each in units)
    return (after // before, 1) if after > before else (1, before // after)


def _units_in_a_second(written: Any, wanted: Any) -> int:
    """Of the writer's time of day; without one, numbers are taken for the reader's."""
    units = (_PER_SECOND.get(str(each.get("logicalType", "")).rpartition("-")[2]) for each in (written, wanted))
    return next(each for each in units if each is not None)


def _named_alike(written: Any, wanted: Any) -> bool:
    short = {name.rpartition(".")[2] for name in (wanted["name"], *wanted.get("aliases", ()))}
    return written["name"].rpartition(".")[2] in short


def _same(written: Any, wanted: Any) -> bool:
    if not isinstance(wanted, dict) or written["type"] != wanted["type"]:
        return False
    return "name" not in written or _named_alike(written, wanted)


def _fits(found: Any, value: Any) -> bool:
    """Whether a default may be of this type of a union."""
    kinds: dict[str, Any] = {
        "null": type(None), "boolean": bool, "int": int, "long": int, "float": (int, float), "double": (int, float),
        "string": str, "bytes": str, "fixed": str, "enum": str, "array": list, "map": dict, "record": dict,
    }  # fmt: skip
    if isinstance(found, list):
        return False
    return isinstance(value, kinds[found["type"]]) and isinstance(value, bool) == (found["type"] == "boolean")


def _encoded_leaf(found: Any, value: Any) -> bytes:
    kind = found["type"]
    if kind == "null":
        return b""
    if kind == "boolean":
        return bytes((bool(value),))
    if kind in ("int", "long"):
        return _zigzag(int(value))
    if kind in ("float", "double"):
        return struct.pack("<f" if kind == "float" else "<d", value)
    if kind == "enum":
        return _zigzag(found["symbols"].index(value))
    if kind == "string":
        return _text(value)
    data: bytes = value.encode("latin-1")
    return data if kind == "fixed" else _zigzag(len(data)) + data


def _text(value: str) -> bytes:
    return _zigzag(len(value.encode())) + value.encode()


def _zigzag(value: int) -> bytes:
    raw = (value << 1) ^ (value >> 63)
    made = bytearray()
    while raw > 0x7F:
        made.append(raw & 0x7F | 0x80)
        raw >>= 7
    made.append(raw)
    return bytes(made)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(schema: Any) -> str:
    if isinstance(schema, dict):
        return str(schema.get("name") or schema.get("logicalType") or schema["type"])
    return json.dumps(schema)[:80]
