"""The compiled interpreter that reads Avro into columns: one kernel for all schemas, so that none is ever compiled.

A program (`avro_program`) is a table of operations: what stands next in the record, and which column it goes to. The
kernel runs twice over the rows of a batch. The first run writes nothing: it checks every row and counts what each
column needs. The second run fills buffers of exactly these sizes in Arrow's layout, and rows that the first run refused
are null. The buffers of all columns are parts of one piece of memory, which the kernel sees with several types.

The bytes are untrusted: every read is compared with the end of its row, and the counts of arrays with what the rest of
the row can hold.
"""

from __future__ import annotations

import numba
import numpy as np

from penstock.records.columnar_types import (
    BOOL,
    BYTES,
    I64,
    I64_TABLE,
    READ_BYTES,
    copy_bytes,
    kernel,
    pointer_as,
    pointer_to,
)

# Operations. Columns of the table: operation, column, and two operands. The kernel tells groups of them apart by their
# first and last members, so that what they have in common is compiled once.
(
    END,
    # A number comes first.
    INT,  # to 32 bits
    LONG,  # to 64 bits; times the first operand, divided by the second
    INT_TO_FLOAT,
    INT_TO_DOUBLE,
    ENUM,  # the first operand: where its table of symbols begins; the second: how many there are
    BINARY,  # bytes and text; the first operand: whether it is text
    DECIMAL,  # an integer of so many bytes as the number says, to the width of the second operand
    SKIP_BINARY,
    SKIP_NUMBER,
    UNION,  # the first operand: where its table of addresses begins; the second: how many branches it has
    # The first operand says how many bytes come.
    STRUCT,  # one that is not null; its fields follow
    FIXED,  # copied: fixed, float and double
    BOOLEAN,
    FLOAT_TO_DOUBLE,
    FIXED_DECIMAL,  # to the width of the second operand
    SKIP,
    # No value of their own.
    NULL,  # a null in a column of fixed width
    NULL_BINARY,  # a null in a column with offsets
    JUMP,
    LIST_BEGIN,
    LIST_NEXT,  # the first operand: where to go at the end; the second: whether items have bytes of their own
    DEFAULT_BEGIN,  # read the constants from here; the second operand: their end
    DEFAULT_END,
    TIME_OF_DAY,  # the number that comes next is at least 0 and below the first operand
    DECIMAL_BOUNDS,  # the first operand: where the bounds of the decimal that comes next stand among the constants
) = range(26)

DEPTH_MAX = 64
EMPTY_ITEMS_MAX = 1 << 20

# Why a row is refused.
FINE, ENDS_EARLY, LONG_VARINT, BAD_LENGTH, BAD_BRANCH, BAD_SYMBOL, BAD_TEXT, BAD_INT, BAD_BOOLEAN, BAD_COUNT = range(10)
BAD_DECIMAL, LEFT_OVER, BAD_TIME = 10, 11, 12
FAULTS = {
    ENDS_EARLY: "the bytes end too early",
    LONG_VARINT: "a number of more than 64 bits",
    BAD_LENGTH: "a length that leaves the record",
    BAD_BRANCH: "a branch of a union that the reader's schema does not have",
    BAD_SYMBOL: "a symbol that the reader's schema does not have",
    BAD_TEXT: "text that is not UTF-8",
    BAD_INT: "an int of more than 32 bits",
    BAD_BOOLEAN: "a boolean that is neither 0 nor 1",
    BAD_COUNT: "more items than the record can hold",
    BAD_DECIMAL: "a decimal with more digits than its precision",
    BAD_TIME: "a time of day outside of a day",
    LEFT_OVER: "bytes are left over; was it written with another schema?",
}

_MASK63 = 0x7FFFFFFFFFFFFFFF


@numba.njit(nogil=True)
def _number(source, position, end):  # type: ignore[no-untyped-def]
    """A zigzag varint and the position after it; -fault instead of the position."""
    if position < end:
        first = np.int64(source[position])
        if first < 0x80:
            return (first >> 1) ^ -(first & 1), position + 1
    raw = np.int64(0)
    shift = 0
    while position < end:
        byte = np.int64(source[position])
        position += 1
        if shift == 63 and byte > 1:
            return raw, np.int64(-LONG_VARINT)
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return ((raw >> 1) & _MASK63) ^ -(raw & 1), position
        shift += 7
    return raw, np.int64(-ENDS_EARLY)


@numba.njit(nogil=True)
def _is_utf8(source, position, end):  # type: ignore[no-untyped-def]
    bits = np.uint8(0)
    for index in range(position, end):
        bits |= source[index]
    if bits < 0x80:
        return True
    while position < end:
        first = source[position]
        if first < 0x80:
            position += 1
            continue
        if 0xC2 <= first <= 0xDF:
            more, lowest, highest = 1, 0x80, 0xBF
        elif 0xE0 <= first <= 0xEF:
            more = 2
            lowest = 0xA0 if first == 0xE0 else 0x80
            highest = 0x9F if first == 0xED else 0xBF
        elif 0xF0 <= first <= 0xF4:
            more = 3
            lowest = 0x90 if first == 0xF0 else 0x80
            highest = 0x8F if first == 0xF4 else 0xBF
        else:
            return False
        if position + more >= end:
            return False
        if source[position + 1] < lowest or source[position + 1] > highest:
            return False
        for index in range(2, more + 1):
            if source[position + index] & 0xC0 != 0x80:
                return False
        position += more + 1
    return True


@numba.njit(nogil=True)
def _fits(source, position, size, width, constants, bounds):  # type: ignore[no-untyped-def]
    """Whether a decimal lies between its bounds: the largest and the smallest, as big-endian integers of the width."""
    sign = 0xFF if size > 0 and source[position] >= 0x80 else 0
    for index in range(size - width):
        if source[position + index] != sign:
            return False
    if sign:
        bounds += width
    before = width - size  # bytes that only repeat the sign
    for index in range(width):
        byte = np.int64(sign if index < before else source[position + index - before])
        bound = np.int64(constants[bounds + index])
        if byte != bound:
            return (byte < bound) == (sign == 0)
    return True


@numba.njit(nogil=True)
def _reverse(source, position, size, memory, to, width):  # type: ignore[no-untyped-def]
    """A decimal: big-endian in Avro, little-endian in Arrow."""
    sign = 0xFF if size > 0 and source[position] >= 0x80 else 0
    for index in range(width):
        if index < size:
            memory[to + index] = source[position + size - 1 - index]
        else:
            memory[to + index] = sign


_SIGNATURE = (
    READ_BYTES,
    READ_BYTES,
    I64,
    I64,
    I64,
    I64_TABLE,
    I64,
    I64,
    I64,
    I64,
    I64,
    I64,
    I64,
    BOOL,
    BYTES,
    I64,
    I64,
)


@kernel(numba.void(*_SIGNATURE))
def run(  # type: ignore[no-untyped-def]  # noqa: C901, PLR0917
    buffer,
    constants,
    row_starts,
    row_ends,
    row_programs,
    program_table,
    branch_table,
    column_bases,  # where a column's values or offsets begin in the memory, in bytes
    column_validities,  # ... where its validity begins, a byte a row; -1 if it has none
    column_contents,  # ... where the bytes of text begin
    column_counts,  # ... its rows so far
    column_used,  # ... its bytes of text, or items, so far
    items_left,  # for the kernel: of the lists that a row is in
    fills,
    memory,
    row_faults,
    row_addresses,  # where a refused row stopped
):
    data, defaults = pointer_to(buffer), pointer_to(constants)
    starts, ends, entries = pointer_to(row_starts), pointer_to(row_ends), pointer_to(row_programs)
    faults, addresses = pointer_to(row_faults), pointer_to(row_addresses)
    program, tables = pointer_to(program_table), pointer_to(branch_table)
    bases, validities, contents = pointer_to(column_bases), pointer_to(column_validities), pointer_to(column_contents)
    counts, used, remaining = pointer_to(column_counts), pointer_to(column_used), pointer_to(items_left)
    target, target_i32, target_i64 = pointer_to(memory), pointer_as(memory, np.int32), pointer_as(memory, np.int64)
    target_f32, target_f64 = pointer_as(memory, np.float32), pointer_as(memory, np.float64)
    for row in range(row_starts.shape[0]):
        source = data
        position = starts[row]
        end = ends[row]
        saved_position = position
        saved_end = end
        address = entries[row]
        depth = 0
        fault = np.int64(FINE)
        value = np.int64(0)
        bounds = np.int64(0)
        while True:
            operation = program[4 * address]
            column = program[4 * address + 1]
            first = program[4 * address + 2]
            second = program[4 * address + 3]
            address += 1
            size = np.int64(0)  # of the bytes that the operation takes
            if INT <= operation <= UNION or (operation == LIST_NEXT and remaining[depth] == 0):
                value, position = _number(source, position, end)
                if position < 0:
                    fault = -position
                    break
                if BINARY <= operation <= SKIP_BINARY:
                    size = value
                    if size < 0 or size > end - position:
                        fault = np.int64(BAD_LENGTH)
                        break
            elif STRUCT <= operation <= SKIP:
                size = first
                if size > end - position:
                    fault = np.int64(ENDS_EARLY)
                    break
            if INT <= operation <= DECIMAL or STRUCT <= operation <= FIXED_DECIMAL:
                at = counts[column]
                counts[column] = at + 1
                if not fills:
                    if operation == BINARY:
                        used[column] += size
                        if first and not _is_utf8(source, position, position + size):
                            fault = np.int64(BAD_TEXT)
                    elif operation == INT:
                        if value > 0x7FFFFFFF or value < -0x80000000:
                            fault = np.int64(BAD_INT)
                    elif operation == ENUM:
                        if value < 0 or value >= second or tables[first + value] < 0:
                            fault = np.int64(BAD_SYMBOL)
                    elif operation == BOOLEAN:
                        if source[position] > 1:
                            fault = np.int64(BAD_BOOLEAN)
                    elif (operation == DECIMAL or operation == FIXED_DECIMAL) and not _fits(  # noqa: SIM109
                        source, position, size, second, defaults, bounds
                    ):
                        fault = np.int64(BAD_DECIMAL)
                    if fault != FINE:
                        break
                else:
                    base = bases[column]
                    if operation == BINARY:
                        before = used[column]
                        copy_bytes(target, contents[column] + before, source, position, size)
                        used[column] = before + size
                        target_i32[(base >> 2) + at + 1] = before + size
                    elif operation == LONG:
                        value *= first
                        if second != 1:
                            value //= second
                        target_i64[(base >> 3) + at] = value
                    elif operation == INT:
                        target_i32[(base >> 2) + at] = value
                    elif FIXED <= operation <= BOOLEAN:
                        copy_bytes(target, base + at * size, source, position, size)
                    elif operation == ENUM:
                        target_i32[(base >> 2) + at] = tables[first + value]
                    elif operation == DECIMAL or operation == FIXED_DECIMAL:  # noqa: SIM109  # a tuple compiles slowly
                        _reverse(source, position, size, target, base + at * second, second)
                    elif operation == FLOAT_TO_DOUBLE:
                        copy_bytes(target, base + at * 8, source, position, 4)
                        target_f64[(base >> 3) + at] = target_f32[(base >> 2) + at * 2]
                    elif operation == INT_TO_DOUBLE:
                        target_f64[(base >> 3) + at] = value
                    elif operation == INT_TO_FLOAT:
                        target_f32[(base >> 2) + at] = value
                    if validities[column] >= 0:
                        target[validities[column] + at] = 1
            elif operation == UNION:
                if value < 0 or value >= second:
                    fault = np.int64(BAD_BRANCH)
                    break
                address = tables[first + value]
                if address < 0:
                    fault = np.int64(BAD_BRANCH)
                    break
            elif operation == JUMP:
                address = first
            elif NULL <= operation <= NULL_BINARY:
                at = counts[column]
                counts[column] = at + 1
                if fills and operation == NULL_BINARY:
                    target_i32[(bases[column] >> 2) + at + 1] = used[column]
            elif operation == LIST_BEGIN:
                depth += 1
                remaining[depth] = 0
            elif operation == LIST_NEXT:
                if remaining[depth] > 0:
                    remaining[depth] -= 1
                elif value == 0:
                    depth -= 1
                    address = first
                    if column >= 0:
                        at = counts[column]
                        counts[column] = at + 1
                        if fills:
                            target_i32[(bases[column] >> 2) + at + 1] = used[column]
                            if validities[column] >= 0:
                                target[validities[column] + at] = 1
                else:
                    if value < 0:  # a block with its size
                        value = -value
                        _, position = _number(source, position, end)
                        if position < 0:
                            fault = -position
                            break
                    if value < 0 or (value > end - position if second else value > EMPTY_ITEMS_MAX):
                        fault = np.int64(BAD_COUNT)
                        break
                    remaining[depth] = value - 1
                    if column >= 0:
                        used[column] += value
            elif operation == DEFAULT_BEGIN:
                saved_position, saved_end = position, end
                source = defaults
                position, end = first, second
            elif operation == DEFAULT_END:
                source = data
                position, end = saved_position, saved_end
            elif operation == TIME_OF_DAY:
                value, after = _number(source, position, end)
                if after >= 0 and (value < 0 or value >= first):
                    fault = np.int64(BAD_TIME)
                    break
            elif operation == DECIMAL_BOUNDS:
                bounds = first
            elif operation == END:
                if position != end:
                    fault = np.int64(LEFT_OVER)
                break
            position += size
        if fault != FINE:
            faults[row] = fault
            addresses[row] = address - 1
