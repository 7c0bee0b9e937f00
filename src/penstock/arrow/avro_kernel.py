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

from penstock.records.columnar_types import BOOL, BYTES, I32, I64, I64_TABLE, READ_BYTES, kernel, pointer_to

F32 = numba.float32[::1]
F64 = numba.float64[::1]

# Operations. Columns of the table: operation, column, and two operands.
(
    END,
    INT,  # to 32 bits
    LONG,  # to 64 bits; times the first operand, divided by the second
    INT_TO_FLOAT,
    INT_TO_DOUBLE,
    FLOAT,
    FLOAT_TO_DOUBLE,
    DOUBLE,
    BOOLEAN,
    BINARY,  # bytes and text; the first operand: whether it is text
    FIXED,  # so many bytes
    DECIMAL,  # an integer of so many bytes (0: a length precedes it) to the width of the second operand
    ENUM,  # the first operand: where its table of symbols begins; the second: how many there are
    UUID,  # 16 bytes to text
    NULL,  # a null in a column of fixed width
    NULL_BINARY,  # a null in a column with offsets
    STRUCT,  # one that is not null
    UNION,  # the first operand: where its table of addresses begins; the second: how many branches it has
    JUMP,
    LIST_BEGIN,
    LIST_NEXT,  # the first operand: where to go at the end; the second: whether items have bytes of their own
    SKIP_VARINT,
    SKIP_BINARY,
    SKIP,
    DEFAULT_BEGIN,  # read the constants from here; the second operand: their end
    DEFAULT_END,
) = range(26)

DEPTH_MAX = 64
EMPTY_ITEMS_MAX = 1 << 20

# Why a row is refused.
FINE, ENDS_EARLY, LONG_VARINT, BAD_LENGTH, BAD_BRANCH, BAD_SYMBOL, BAD_TEXT, BAD_INT, BAD_BOOLEAN, BAD_COUNT = range(10)
BAD_DECIMAL, LEFT_OVER = 10, 11
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
def _little_endian(source, position, width):  # type: ignore[no-untyped-def]
    value = np.int64(0)
    for index in range(width):
        value |= np.int64(source[position + index]) << (8 * index)
    return value


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


_SIGNATURE = (
    *(READ_BYTES, READ_BYTES, I64, I64, I64, I64_TABLE, I64),
    *(I64, I64, I64, I64, I64),
    *(BOOL, BYTES, I32, I64, F32, F64, I64, I64),
)


@kernel(numba.void(*_SIGNATURE))
def run(  # type: ignore[no-untyped-def]  # noqa: C901, PLR0917
    buffer,
    constants,
    starts,
    ends,
    entries,  # the program of each row
    program,
    tables,
    bases,  # of each column: where its values or offsets begin in the memory, in bytes
    validities,  # ... where its validity begins, a byte a row; -1 if it has none
    contents,  # ... where the bytes of text begin
    counts,  # ... its rows so far
    used,  # ... its bytes of text, or items, so far
    fills,
    memory,
    memory_i32,
    memory_i64,
    memory_f32,
    memory_f64,
    faults,
    addresses,  # where a refused row stopped
):
    data = pointer_to(buffer)
    defaults = pointer_to(constants)
    remaining = np.empty(DEPTH_MAX + 1, np.int64)
    float_bits = np.empty(1, np.int32)
    as_float = float_bits.view(np.float32)
    for row in range(entries.shape[0]):
        source = data
        position = starts[row]
        end = ends[row]
        saved_position = position
        saved_end = end
        address = entries[row]
        depth = 0
        fault = np.int64(FINE)
        value = np.int64(0)
        while True:
            operation = program[address, 0]
            column = program[address, 1]
            first = program[address, 2]
            second = program[address, 3]
            address += 1
            if operation <= INT_TO_DOUBLE and operation != END:
                value, position = _number(source, position, end)
                if position < 0:
                    fault = -position
                    break
                if operation == INT and (value > 0x7FFFFFFF or value < -0x80000000):
                    fault = np.int64(BAD_INT)
                    break
                at = counts[column]
                counts[column] = at + 1
                if fills:
                    if operation == LONG:
                        value *= first
                        if second != 1:
                            value //= second
                        memory_i64[(bases[column] >> 3) + at] = value
                    elif operation == INT:
                        memory_i32[(bases[column] >> 2) + at] = value
                    elif operation == INT_TO_DOUBLE:
                        memory_f64[(bases[column] >> 3) + at] = value
                    else:
                        memory_f32[(bases[column] >> 2) + at] = value
                    if validities[column] >= 0:
                        memory[validities[column] + at] = 1
            elif operation == BINARY:
                value, position = _number(source, position, end)
                if position < 0:
                    fault = -position
                    break
                if value < 0 or value > end - position:
                    fault = np.int64(BAD_LENGTH)
                    break
                at = counts[column]
                counts[column] = at + 1
                bytes_before = used[column]
                used[column] = bytes_before + value
                if fills:
                    to = contents[column] + bytes_before
                    for index in range(value):
                        memory[to + index] = source[position + index]
                    memory_i32[(bases[column] >> 2) + at + 1] = bytes_before + value
                    if validities[column] >= 0:
                        memory[validities[column] + at] = 1
                elif first and not _is_utf8(source, position, position + value):
                    fault = np.int64(BAD_TEXT)
                    break
                position += value
            elif operation == UNION:
                value, position = _number(source, position, end)
                if position < 0:
                    fault = -position
                    break
                if value < 0 or value >= second:
                    fault = np.int64(BAD_BRANCH)
                    break
                address = tables[first + value]
                if address < 0:
                    fault = np.int64(BAD_BRANCH)
                    break
            elif operation == JUMP:
                address = first
            elif operation == NULL:
                counts[column] += 1
            elif operation == NULL_BINARY:
                at = counts[column]
                counts[column] = at + 1
                if fills:
                    memory_i32[(bases[column] >> 2) + at + 1] = used[column]
            elif operation == STRUCT:
                at = counts[column]
                counts[column] = at + 1
                if fills and validities[column] >= 0:
                    memory[validities[column] + at] = 1
            elif operation == LIST_BEGIN:
                depth += 1
                remaining[depth] = 0
            elif operation == LIST_NEXT:
                if remaining[depth] > 0:
                    remaining[depth] -= 1
                    continue
                value, position = _number(source, position, end)
                if position < 0:
                    fault = -position
                    break
                if value == 0:
                    depth -= 1
                    address = first
                    if column >= 0:
                        at = counts[column]
                        counts[column] = at + 1
                        if fills:
                            memory_i32[(bases[column] >> 2) + at + 1] = used[column]
                            if validities[column] >= 0:
                                memory[validities[column] + at] = 1
                    continue
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
            elif operation in (DOUBLE, FLOAT, FLOAT_TO_DOUBLE):
                width = 8 if operation == DOUBLE else 4
                if end - position < width:
                    fault = np.int64(ENDS_EARLY)
                    break
                at = counts[column]
                counts[column] = at + 1
                if fills:
                    value = _little_endian(source, position, width)
                    if operation == DOUBLE:
                        memory_i64[(bases[column] >> 3) + at] = value
                    elif operation == FLOAT:
                        memory_i32[(bases[column] >> 2) + at] = value
                    else:
                        float_bits[0] = value
                        memory_f64[(bases[column] >> 3) + at] = as_float[0]
                    if validities[column] >= 0:
                        memory[validities[column] + at] = 1
                position += width
            elif operation == BOOLEAN:
                if position >= end:
                    fault = np.int64(ENDS_EARLY)
                    break
                value = np.int64(source[position])
                position += 1
                if value > 1:
                    fault = np.int64(BAD_BOOLEAN)
                    break
                at = counts[column]
                counts[column] = at + 1
                if fills:
                    memory[bases[column] + at] = value
                    if validities[column] >= 0:
                        memory[validities[column] + at] = 1
            elif operation == ENUM:
                value, position = _number(source, position, end)
                if position < 0:
                    fault = -position
                    break
                if value < 0 or value >= second or tables[first + value] < 0:
                    fault = np.int64(BAD_SYMBOL)
                    break
                at = counts[column]
                counts[column] = at + 1
                if fills:
                    memory_i32[(bases[column] >> 2) + at] = tables[first + value]
                    if validities[column] >= 0:
                        memory[validities[column] + at] = 1
            elif operation == FIXED:
                if end - position < first:
                    fault = np.int64(ENDS_EARLY)
                    break
                at = counts[column]
                counts[column] = at + 1
                if fills:
                    to = bases[column] + at * first
                    for index in range(first):
                        memory[to + index] = source[position + index]
                    if validities[column] >= 0:
                        memory[validities[column] + at] = 1
                position += first
            elif operation == DECIMAL:
                value = first
                if first == 0:
                    value, position = _number(source, position, end)
                    if position < 0:
                        fault = -position
                        break
                if value < 0 or value > end - position:
                    fault = np.int64(BAD_LENGTH)
                    break
                # Big-endian in Avro, little-endian in Arrow. More bytes than the width must only repeat the sign.
                sign = 0xFF if value > 0 and source[position] >= 0x80 else 0
                excess = value - second
                for index in range(excess):
                    if source[position + index] != sign:
                        fault = np.int64(BAD_DECIMAL)
                if excess > 0 and (source[position + excess] >= 0x80) != (sign == 0xFF):
                    fault = np.int64(BAD_DECIMAL)
                if fault != FINE:
                    break
                at = counts[column]
                counts[column] = at + 1
                if fills:
                    to = bases[column] + at * second
                    for index in range(second):
                        if index < value:
                            memory[to + index] = source[position + value - 1 - index]
                        else:
                            memory[to + index] = sign
                    if validities[column] >= 0:
                        memory[validities[column] + at] = 1
                position += value
            elif operation == UUID:
                if end - position < 16:
                    fault = np.int64(ENDS_EARLY)
                    break
                at = counts[column]
                counts[column] = at + 1
                bytes_before = used[column]
                used[column] = bytes_before + 36
                if fills:
                    to = contents[column] + bytes_before
                    for index in range(16):
                        if index == 4 or index == 6 or index == 8 or index == 10:
                            memory[to] = 45
                            to += 1
                        for shift in range(4, -1, -4):
                            digit = (np.int64(source[position + index]) >> shift) & 15
                            memory[to] = 48 + digit if digit < 10 else 87 + digit
                            to += 1
                    memory_i32[(bases[column] >> 2) + at + 1] = bytes_before + 36
                    if validities[column] >= 0:
                        memory[validities[column] + at] = 1
                position += 16
            elif operation == SKIP_VARINT:
                value, position = _number(source, position, end)
                if position < 0:
                    fault = -position
                    break
            elif operation == SKIP_BINARY:
                value, position = _number(source, position, end)
                if position < 0:
                    fault = -position
                    break
                if value < 0 or value > end - position:
                    fault = np.int64(BAD_LENGTH)
                    break
                position += value
            elif operation == SKIP:
                if end - position < first:
                    fault = np.int64(ENDS_EARLY)
                    break
                position += first
            elif operation == DEFAULT_BEGIN:
                saved_position, saved_end = position, end
                source = defaults
                position, end = first, second
            elif operation == DEFAULT_END:
                source = data
                position, end = saved_position, saved_end
            else:
                if position != end:
                    fault = np.int64(LEFT_OVER)
                break
        if fault != FINE:
            faults[row] = fault
            addresses[row] = address - 1
