"""A number in JSON values, for a whole column at once: Arrow's own reader is some ten times as fast as `json`.

It wants every value to be one object in one line, and the field to be a number everywhere. Where that is not so, there
is no answer, and the caller looks at the values one by one.
"""

from __future__ import annotations

from typing import Any

from penstock.console.views.json_path import Condition

_COMPARISONS = {"<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal", "=": "equal"}


def numbers_match(values: Any, condition: Condition) -> Any | None:
    """Which of these values satisfy a comparison with a number; None if one comparison of all of them cannot decide it.

    Every value must contain the names of the path: then as many objects as values means one object in each.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.json as pj

    wanted = condition.wanted
    names = [step for step in condition.path if isinstance(step, str)]
    if condition.operator not in _COMPARISONS or isinstance(wanted, bool) or not isinstance(wanted, int | float):
        return None
    if len(names) != len(condition.path) or len(condition.necessary()) < len(names):
        return None
    kind: Any = pa.float64()
    for name in reversed(names[1:]):
        kind = pa.struct([pa.field(name, kind)])
    options = pj.ParseOptions(explicit_schema=pa.schema([pa.field(names[0], kind)]), unexpected_field_behavior="ignore")
    lines = pc.binary_join(pa.ListArray.from_arrays([0, len(values)], values), b"\n")[0].as_buffer()
    try:
        read = pj.read_json(
            pa.BufferReader(lines), pj.ReadOptions(use_threads=False, block_size=max(1, lines.size + 1)), options
        )
    except pa.ArrowInvalid:
        return None
    if read.num_rows != len(values):
        return None
    column = read.column(0).combine_chunks()
    for name in names[1:]:
        column = pc.struct_field(column, name)
    compare = getattr(pc, _COMPARISONS[condition.operator])
    return pc.fill_null(compare(column, pa.scalar(float(wanted))), False)
