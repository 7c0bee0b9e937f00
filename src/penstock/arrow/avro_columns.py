"""Reads a batch of Avro bodies into an Arrow array, with a reason for each row that could not be read."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrow import avro_kernel
from penstock.arrow.avro_program import Column, Compiler
from penstock.records.columnar import Bytes, Longs

_ALIGNMENT = 64
_OFFSET_MAX = 2**31 - 1
_UUID_CHARACTERS = 36
_HEX_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


class TooMuchText(ValueError):
    """One batch has more than 2 GiB of text in a column: read smaller batches."""


class AvroColumns:
    """The columns of one reader's schema."""

    def __init__(self, reader: Any) -> None:
        self._compiler = Compiler(reader)
        self._arrays: tuple[Any, Any, Any] | None = None
        self.type = self._compiler.root.type

    @property
    def null_program(self) -> int:
        return self._compiler.null_program

    def compile(self, writer: Any) -> int:
        """The program for records of this writer; Unreadable if the reader's schema cannot read them."""
        program = self._compiler.compile(writer)
        self._arrays = None
        return program

    def more_fields(self, writer: Any) -> list[str]:
        """The fields of a writer's record that the reader's does not have."""
        wanted = self._compiler.root.avro
        if not isinstance(writer, dict) or "fields" not in writer or not isinstance(wanted, dict):
            return []
        known = {name for each in wanted.get("fields", ()) for name in (each["name"], *each.get("aliases", ()))}
        return [each["name"] for each in writer["fields"] if each["name"] not in known]

    def decode(self, buffer: Bytes, starts: Longs, ends: Longs, programs: Longs) -> tuple[Any, dict[int, str]]:
        """An array with a row for each body, and the reasons of those that are null because they are malformed."""
        columns = self._compiler.columns
        faults, addresses = np.zeros((2, len(starts)), np.int64)
        counts, used = np.zeros((2, len(columns)), np.int64)
        nowhere = np.full(len(columns), -1, np.int64)
        no_memory = np.zeros(8, np.uint8)
        arguments = (buffer, starts, ends)
        self._run(arguments, programs, (nowhere, nowhere, nowhere), counts, used, no_memory, faults, addresses)
        reasons = {int(row): self._reason(int(faults[row]), int(addresses[row])) for row in np.flatnonzero(faults != 0)}
        if reasons:
            programs = np.where(faults != 0, self.null_program, programs)
        # Refused rows were counted, too, up to their faults: there is some more space than is filled.
        rows = counts + len(reasons) + 1
        bases, memory = self._lay_out(rows, used)
        filled, filled_used = np.zeros((2, len(columns)), np.int64)
        faults[:] = 0
        self._run(arguments, programs, bases, filled, filled_used, memory, faults, addresses)
        array = _Builder(memory, bases, filled, filled_used).array(self._compiler.root)
        return array, reasons

    def _run(
        self,
        rows: tuple[Bytes, Longs, Longs],
        programs: Longs,
        bases: tuple[Longs, Longs, Longs],
        counts: Longs,
        used: Longs,
        memory: Bytes,
        faults: Longs,
        addresses: Longs,
    ) -> None:
        if self._arrays is None:
            self._arrays = self._compiler.arrays()
        table, tables, constants = self._arrays
        avro_kernel.run(
            rows[0],
            constants,
            rows[1],
            rows[2],
            programs,
            table,
            tables,
            *bases,
            counts,
            used,
            np.empty(avro_kernel.DEPTH_MAX + 1, np.int64),
            len(memory) > 8,
            memory,
            faults,
            addresses,
        )

    def _lay_out(self, rows: Longs, used: Longs) -> tuple[tuple[Longs, Longs, Longs], Bytes]:
        """Where the buffers of each column begin, and the memory for all. The system gives zeros for nothing."""
        bases, validities, contents = np.full((3, len(rows)), -1, np.int64)
        size = _ALIGNMENT
        for column in self._compiler.columns:
            number = column.number
            count = int(rows[number])
            if column.nullable:
                validities[number], size = size, size + _aligned(count)
            width = 4 if column.offsets else column.width
            bases[number], size = size, size + _aligned((count + 1) * width)
            if column.offsets and not column.children:
                contents[number], size = size, size + _aligned(int(used[number]))
            if column.offsets and used[number] > _OFFSET_MAX:
                raise TooMuchText(f"{column.path}: more than 2 GiB in one batch; read smaller batches")
        return (bases, validities, contents), np.zeros(size, np.uint8)

    def _reason(self, fault: int, address: int) -> str:
        path = self._compiler.paths[address]
        return f"{path}: {avro_kernel.FAULTS[fault]}" if path else avro_kernel.FAULTS[fault]


class _Builder:
    """Arrow arrays over the memory, without copies except for bits and symbols."""

    def __init__(self, memory: Bytes, bases: tuple[Longs, Longs, Longs], counts: Longs, used: Longs) -> None:
        self._memory = memory
        self._bases, self._validities, self._contents = bases
        self._counts = counts
        self._used = used

    def array(self, column: Column) -> Any:
        number = column.number
        count = int(self._counts[number])
        base = int(self._bases[number])
        validity = self._validity(column, count)
        if column.kind in ("record", "union"):
            children = [self.array(each) for each in column.children]
            return pa.Array.from_buffers(column.type, count, [validity], children=children)
        if column.kind == "null":
            return pa.nulls(count)
        if column.offsets:
            return self._with_offsets(column, count, validity, self._buffer(base, 4 * (count + 1)))
        if column.kind == "boolean":
            bits = np.packbits(self._memory[base : base + count], bitorder="little")
            return pa.Array.from_buffers(column.type, count, [validity, pa.py_buffer(bits)])
        values = self._buffer(base, count * column.width)
        if column.kind == "enum":
            indexes = pa.Array.from_buffers(pa.int32(), count, [validity, values])
            return pa.DictionaryArray.from_arrays(indexes, pa.array(column.symbols, pa.string())).dictionary_decode()
        if column.kind == "fixed" and pa.types.is_string(column.type):
            offsets, text = _uuids(self._memory[base : base + 16 * count].reshape(count, 16))
            return pa.Array.from_buffers(column.type, count, [validity, offsets, text])
        return pa.Array.from_buffers(column.type, count, [validity, values])

    def _with_offsets(self, column: Column, count: int, validity: Any, offsets: Any) -> Any:
        if not column.children:
            text = self._buffer(int(self._contents[column.number]), int(self._used[column.number]))
            return pa.Array.from_buffers(column.type, count, [validity, offsets, text])
        children = [self.array(each) for each in column.children]
        if column.kind == "map":
            pairs = [column.type.key_field, column.type.item_field]
            children = [pa.StructArray.from_arrays(children, fields=pairs)]
        return pa.Array.from_buffers(column.type, count, [validity, offsets], children=children)

    def _validity(self, column: Column, count: int) -> Any:
        if not column.nullable:
            return None
        start = int(self._validities[column.number])
        present = self._memory[start : start + count]
        return None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))

    def _buffer(self, start: int, size: int) -> Any:
        return pa.py_buffer(self._memory[start : start + size])


def _uuids(raw: Any) -> tuple[Any, Any]:
    """Offsets and text of UUIDs: five groups of digits, with a dash between them."""
    digits = _HEX_DIGITS[np.stack([raw >> 4, raw & 15], axis=2).reshape(len(raw), 32)]
    text = np.full((len(raw), _UUID_CHARACTERS), ord("-"), np.uint8)
    for before, (start, end) in enumerate(itertools.pairwise((0, 8, 12, 16, 20, 32))):
        text[:, start + before : end + before] = digits[:, start:end]
    offsets = np.arange(len(raw) + 1, dtype=np.int64) * _UUID_CHARACTERS
    if offsets[-1] > _OFFSET_MAX:
        raise TooMuchText("UUIDs of more than 2 GiB in one batch; read smaller batches")
    return pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(text)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
