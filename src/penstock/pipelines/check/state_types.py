"""The types in the state of a query, as text: they stand for the schemas that Spark would give its state stores.

Spark refuses a state whose schema is another, or, worse, reads it wrongly. The type of an expression follows from its
operators and from the types of its columns. So an expression in which every column is replaced by its type stands for
its own type: where two such texts are equal, Spark's types are equal. `SUM(value)` over `amount * 2 AS value` is
`SUM(DOUBLE * 2)`, and after an edit of the schema `SUM(DECIMAL(12, 2) * 2)`. Casts and counts have a type of their own,
whatever they are made of.

Where columns cannot be followed (joins, subqueries, WITH, LATERAL VIEW, Python), the types of all columns that are
mentioned stand for the whole. This refuses too much, never too little.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from penstock.pipelines.check.checkpoint_shape import QueryShape, SourceShape, StepShape
from penstock.pipelines.spec import sql
from penstock.pipelines.spec.model import METADATA_COLUMNS

_BOOLEAN = (exp.Predicate, exp.Connector, exp.Not)


@dataclass(frozen=True, slots=True)
class _Table:
    """The types of its columns, or of all that they may be made of."""

    columns: Mapping[str, str] | None
    whole: str = ""

    def type_of(self, name: str) -> str | None:
        if self.columns is None:
            return f"{name} of ({self.whole})"
        return self.columns.get(name.lower())


def state_types(shape: QueryShape, other: QueryShape) -> list[str]:
    """In order, one text for each part of the state; empty if there is no state. `other`: the shape to compare with.
    Python functions are taken not to use columns that only one of both has."""
    tables = {name.lower(): _source(each) for name, each in {**shape.sources, **shape.lookups}.items()}
    found: list[str] = []
    for name, step in shape.streamed.items():
        try:
            tree = sql.parse_query(step.text).tree
        except sql.SqlInvalid:
            known = _Table(None, _listed(_shared(shape, other)))
            found += [known.whole] if step.state else []
        else:
            reading = _Reading(tree, tables)
            found += reading.state(step) if step.state else []
            known = reading.output()
        tables[name.lower()] = known
    return found


def _source(source: SourceShape) -> _Table:
    columns = {name.lower(): kind for name, kind in source.columns.items()}
    if not columns and source.decoding:
        columns = {"value": source.decoding}
    if not columns:
        return _Table(None)
    metadata = dict(zip(METADATA_COLUMNS, METADATA_COLUMNS, strict=True)) if source.kind == "topics" else {}
    return _Table({**metadata, **columns})


def _shared(shape: QueryShape, other: QueryShape) -> Iterator[str]:
    for (name, source), same in zip(shape.sources.items(), other.sources.values(), strict=False):
        yield from (f"{name}.{column} {kind}" for column, kind in source.columns.items() if column in same.columns)


def _listed(parts: Iterable[str]) -> str:
    return ", ".join(sorted(parts))


class _Reading:
    """A query over tables whose types are known."""

    def __init__(self, tree: exp.Query, tables: Mapping[str, _Table]) -> None:
        self._tree = tree
        self._tables = tables
        self._simple = _simple(tree)
        self._sources = self._named() if self._simple else {}
        self._aliases: dict[str, exp.Expression] = {}
        if self._simple:
            self._aliases = {each.alias.lower(): each.this for each in tree.expressions if isinstance(each, exp.Alias)}

    def state(self, step: StepShape) -> list[str]:
        """The parts that `checkpoint_shape` takes for the step's state."""
        tree = self._tree
        if not self._simple or step.state == (step.text,):
            return [self._mentioned()]
        parts = [self._type(each) for each in tree.find_all(exp.AggFunc)]
        group = tree.args.get("group")
        if group is not None:
            parts += [self._type(self._selected(each)) for each in group.expressions]
            parts += [self._type(each) for key, each in group.args.items() if key != "expressions" and _is_tree(each)]
        if tree.args.get("distinct"):
            parts += [f"{name} {kind}" for name, kind in self._columns().items()]
        return parts

    def output(self) -> _Table:
        return _Table(self._columns()) if self._simple and self._follows_stars() else _Table(None, self._mentioned())

    # -- Inside.

    def _named(self) -> dict[str, _Table]:
        read = [self._tree.args["from_"].this, *(join.this for join in self._tree.args.get("joins") or ())]
        return {each.alias_or_name.lower(): self._tables.get(each.name.lower(), _Table(None)) for each in read}

    def _follows_stars(self) -> bool:
        stars = [each for each in self._tree.expressions if each.is_star]
        return not stars or all(table.columns is not None for table in self._sources.values())

    def _columns(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for each in self._tree.expressions:
            if each.is_star:
                wanted = each.table.lower() if isinstance(each, exp.Column) else ""
                for name, table in self._sources.items():
                    if not wanted or name == wanted:
                        found |= table.columns or {f"* of {name}": table.whole}
            else:
                found[(each.alias_or_name or each.sql(sql.DIALECT)).lower()] = self._type(each.unalias())
        return found

    def _selected(self, grouped: exp.Expression) -> exp.Expression:
        """`GROUP BY 1` is the first column."""
        if isinstance(grouped, exp.Literal) and grouped.is_int and 0 < int(grouped.name) <= len(self._tree.expressions):
            selected: exp.Expression = self._tree.expressions[int(grouped.name) - 1].unalias()
            return selected
        return grouped

    def _type(self, expression: exp.Expr, above: tuple[str, ...] = ()) -> str:
        def typed(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Cast):
                return exp.var(node.to.sql(sql.DIALECT))
            if isinstance(node, exp.Count) and not isinstance(node.this, exp.Distinct):
                return exp.var("BIGINT")
            if isinstance(node, _BOOLEAN):
                return exp.var("BOOLEAN")
            return exp.var(self._column(node, above)) if isinstance(node, exp.Column) else node

        return expression.copy().transform(typed).sql(sql.DIALECT, comments=False)

    def _column(self, column: exp.Column, above: tuple[str, ...]) -> str:
        parts = [part.name.lower() for part in column.parts]
        if len(parts) > 1 and parts[0] in self._sources:
            kind = self._sources[parts[0]].type_of(parts[1])
            if kind is not None:
                return ".".join([kind, *parts[2:]])
        for table in self._sources.values():
            kind = table.type_of(parts[0])
            if kind is not None:
                return ".".join([kind, *parts[1:]])
        if parts[0] in self._aliases and parts[0] not in above:
            return ".".join([self._type(self._aliases[parts[0]], (*above, parts[0])), *parts[1:]])
        return ".".join(parts)

    def _mentioned(self) -> str:
        """The types of all columns that are named anywhere, of all tables; of all columns, if a star is."""
        names = {part.name.lower() for column in self._tree.find_all(exp.Column) for part in column.parts}
        stars = any(not isinstance(star.parent, exp.Count) for star in self._tree.find_all(exp.Star))
        found: list[str] = []
        for table in dict.fromkeys(each.name.lower() for each in self._tree.find_all(exp.Table)):
            known = self._tables.get(table)
            if known is None:
                continue
            if known.columns is None:
                found.append(f"{table} ({known.whole})")
            else:
                found += [f"{table}.{name} {kind}" for name, kind in known.columns.items() if stars or name in names]
        return _listed(found)


def _simple(tree: exp.Query) -> bool:
    """One SELECT of tables."""
    if not isinstance(tree, exp.Select) or tree.args.get("with_") or tree.args.get("laterals"):
        return False
    source = tree.args.get("from_")
    if source is None or tree.find(exp.Subquery) is not None or len(list(tree.find_all(exp.Select))) > 1:
        return False
    read = [source.this, *(join.this for join in tree.args.get("joins") or ())]
    return all(isinstance(each, exp.Table) and not each.args.get("pivots") for each in read)


def _is_tree(part: object) -> bool:
    return isinstance(part, exp.Expr)
