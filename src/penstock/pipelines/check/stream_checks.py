"""Checks what Spark refuses of streams only: joins without bounds, windows without watermarks, orders without end.

Spark reports these when a query starts, or when its first rows arrive. Only what is certain is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from sqlglot import exp

from penstock.pipelines.check.analysis import Analysis, Finding, Table
from penstock.pipelines.check.column_types import Lookup, Type, infer, name_of_call, shown
from penstock.pipelines.check.query_plan import QueryPlan
from penstock.pipelines.check.sql_checks import aggregates, position
from penstock.pipelines.spec import sql
from penstock.pipelines.spec.model import Pipeline
from penstock.pipelines.spec.problems import Path

_OUTER = {"LEFT": "LEFT OUTER", "RIGHT": "RIGHT OUTER", "FULL": "FULL OUTER"}
_TIME_WINDOWS = ("window", "session_window")


def check_queries(pipeline: Pipeline, analysis: Analysis, queries: dict[str, QueryPlan]) -> Iterator[Finding]:
    for query in queries.values():
        table = analysis.tables[query.input]
        if query.drive != "stream" or table.parsed is None:
            continue
        step = pipeline.steps[table.name]
        path: Path = (*table.path, "sql")
        yield from _order(table.parsed, query, path)
        yield from _distinct(table.parsed, path)
        yield from _joins(pipeline, analysis, table, path)
        texts = list(_windows_of_text(table, analysis, query, path))
        yield from texts
        if not step.stateful and not texts:
            yield from _append(pipeline, table, analysis, query, path)


def check_watermarks(pipeline: Pipeline, analysis: Analysis) -> Iterator[Finding]:
    for name, source in pipeline.sources.items():
        kind = analysis.tables[name].types.get(source.watermark.column.lower()) if source.watermark else None
        if (
            source.watermark is not None
            and kind is not None
            and kind.kind not in ("timestamp", "timestamp_ntz", "struct")
        ):
            message = f'a watermark needs a TIMESTAMP, and "{source.watermark.column}" is {kind}'
            way_out = "; declare it as TIMESTAMP in the schema" if kind.kind in ("string", "date") else ""
            yield Finding(message + way_out, ("sources", name, "watermark", "column"))


def _order(query: sql.Query, plan: QueryPlan, path: Path) -> Iterator[Finding]:
    order = query.plain.args.get("order")
    if order is not None and plan.output_mode != "complete":
        message = 'a stream has no end, so ORDER BY cannot sort it; remove it, or say "output: complete"'
        yield Finding(message, path, position(order))


def _distinct(query: sql.Query, path: Path) -> Iterator[Finding]:
    for call in aggregates(query.plain):
        if any(isinstance(each, exp.Distinct) for each in call.expressions):
            name = name_of_call(call)
            way_out = "use approx_count_distinct" if name == "count" else "remove DISTINCT, or do it in an earlier step"
            yield Finding(f"{name}(DISTINCT ...) does not work on streams; {way_out}", path, position(call))


# -- Joins.


def _joins(pipeline: Pipeline, analysis: Analysis, table: Table, path: Path) -> Iterator[Finding]:
    tree = table.parsed.plain if table.parsed is not None else None
    if not isinstance(tree, exp.Select) or tree.args.get("with_"):
        return
    before = [_table(tree.args["from_"].this, analysis)] if tree.args.get("from_") is not None else []
    for join in tree.args.get("joins") or ():
        right = _table(join.this, analysis)
        lefts = [each for each in before if each is not None]
        before.append(right)
        if right is None or len(lefts) != len(before) - 1:
            return  # a subquery: its rows may be anything
        streams = [each for each in lefts if each.drive == "stream"]
        side = str(join.args.get("side") or "").upper()
        outer = _OUTER.get(side) if str(join.args.get("kind") or "").upper() not in ("SEMI", "ANTI") else None
        if streams and right.drive == "stream":
            yield from _two_streams(pipeline, join, outer, [*streams, right], path)
            continue
        kept = ("RIGHT OUTER", "FULL OUTER") if streams else ("LEFT OUTER", "FULL OUTER")
        meets = {each.drive for each in (*lefts, right)} == {"stream", "static"}
        if meets and outer in kept:
            message = f"{outer} JOIN would keep rows of a lookup, which a stream never ends; keep those of the stream"
            yield Finding(message, path, position(join.this))


def _two_streams(
    pipeline: Pipeline, join: exp.Join, outer: str | None, streams: list[Table], path: Path
) -> Iterator[Finding]:
    condition = join.args.get("on")
    if not join.args.get("using") and not _has_equality(condition):
        message = "streams are joined by equal columns; write JOIN ... ON a.id = b.id"
        yield Finding(message, path, position(condition if condition is not None else join.this))
        return
    sources = {name for each in streams for name in each.sources}
    marked = {name: pipeline.sources[name].watermark for name in sources}
    severity: Literal["error", "warning"] = "error" if outer is not None else "warning"
    needs = f"{outer} JOIN of streams needs" if outer is not None else "JOIN of streams needs"
    why = "only then is it known that no partner will come" if outer is not None else "Spark keeps every row otherwise"
    if not any(marked.values()):
        names = ", ".join(sorted(sources))
        message = f'{needs} a "watermark" ({names}): {why}'
        yield Finding(message, path, position(join.this), severity)
        return
    times = {mark.column.lower() for mark in marked.values() if mark is not None}
    direct = all(each.name in pipeline.sources for each in streams)
    if direct and condition is not None and _only_equalities(condition) and not _mentioned(condition) & times:
        message = f"{needs} a bound in time, such as AND b.at BETWEEN a.at AND a.at + INTERVAL 1 HOUR: {why}"
        yield Finding(message, path, position(condition), severity)


def _table(node: exp.Expr, analysis: Analysis) -> Table | None:
    return analysis.find(node.name) if isinstance(node, exp.Table) and not node.db else None


def _has_equality(condition: exp.Expr | None) -> bool:
    """Lenient: anything that may contain one."""
    if condition is None:
        return False
    return condition.find(exp.EQ, exp.NullSafeEQ, exp.Query, exp.In) is not None


def _only_equalities(condition: exp.Expr) -> bool:
    parts = list(condition.flatten()) if isinstance(condition, exp.And) else [condition]
    return all(
        isinstance(each.unnest(), exp.EQ)
        and isinstance(each.unnest().this, exp.Column)
        and isinstance(each.unnest().expression, exp.Column)
        for each in parts
    )


def _mentioned(condition: exp.Expr) -> set[str]:
    return {column.name.lower() for column in condition.find_all(exp.Column)}


# -- Output modes.


def _append(pipeline: Pipeline, table: Table, analysis: Analysis, plan: QueryPlan, path: Path) -> Iterator[Finding]:
    """`append` needs to know when a group is complete: by a window, or by the column of the watermark."""
    tree = table.parsed.plain if table.parsed is not None else None
    if plan.output_mode != "append" or not isinstance(tree, exp.Select) or tree.args.get("with_"):
        return
    group = tree.args.get("group")
    if group is None and not any(True for each in tree.expressions for _ in aggregates(each)):
        return
    said = bool(pipeline.steps[table.name].output)
    where: Path = (*table.path, "output") if said else path
    if not any(pipeline.sources[name].watermark for name in table.sources):
        message = 'a group is written when it is complete, which needs a "watermark"; add one, or say "output: update"'
        yield Finding(message, where)
        return
    inputs = {name.lower(): analysis.tables[name] for name in table.inputs}
    if group is not None and (group.args.get("all") or any(_tells_time(each, inputs) for each in group.expressions)):
        return
    if any(group.args.get(each) for each in ("cube", "rollup", "grouping_sets")) if group is not None else False:
        return
    message = (
        "a group is written when it is complete, which needs a window over the column of the watermark in GROUP BY; "
        'add one, or say "output: update"'
    )
    yield Finding(message, where, None if said else position(group if group is not None else tree.expressions[0]))


def _windows_of_text(table: Table, analysis: Analysis, plan: QueryPlan, path: Path) -> Iterator[Finding]:
    """Spark makes a time of text, but not the time of the watermark: such windows have no end."""
    tree = table.parsed.plain if table.parsed is not None else None
    group = tree.args.get("group") if isinstance(tree, exp.Select) else None
    lookup = _lookup({name.lower(): analysis.tables[name] for name in table.inputs})
    for call in group.find_all(exp.Anonymous) if group is not None else ():
        if name_of_call(call) not in _TIME_WINDOWS or not call.expressions:
            continue
        given = infer(call.expressions[0], lookup)
        if given is not None and given.kind in ("string", "date"):
            message = f"{name_of_call(call)} needs a TIMESTAMP, not {shown(call.expressions[0], given)}"
            way_out = "use the column of the watermark, or declare this one as TIMESTAMP"
            severity: Literal["error", "warning"] = "error" if plan.output_mode == "append" else "warning"
            yield Finding(f"{message}; {way_out}", path, position(call.expressions[0]), severity)


def _lookup(inputs: dict[str, Table]) -> Lookup:
    def found(column: exp.Column) -> Type | None:
        name = column.parts[-1].name.lower()
        owners = [each for each in inputs.values() if each.columns is not None and name in each.columns]
        certain = all(each.columns is not None for each in inputs.values())
        return owners[0].types.get(name) if certain and len(owners) == 1 else None

    return found


def _tells_time(item: exp.Expr, inputs: dict[str, Table]) -> bool:
    """Whether it may carry the time of the watermark; anything that is not known may."""
    if isinstance(item, exp.Literal):
        return True
    lookup = _lookup(inputs)
    if isinstance(item, exp.Column):
        kind = lookup(item)
        return kind is None or kind.kind in ("timestamp", "timestamp_ntz", "struct")
    if isinstance(item, exp.Anonymous) and name_of_call(item) in _TIME_WINDOWS:
        given = infer(item.expressions[0], lookup) if item.expressions else None
        return given is None or given.kind not in ("string", "date")
    kind = infer(item, lookup)
    return kind is None or kind.kind in ("timestamp", "timestamp_ntz", "struct")
