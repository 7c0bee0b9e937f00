"""Checks SQL as Spark's analyzer would, as far as names and types are known: functions, arguments, intervals,
aggregates and grouping, comparisons, joins, names of results.

`validate` must never refuse what Spark would run. So every check is about something certain: where a column, a type or
a function is not known, it says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from penstock.pipelines.check.column_types import (
    ARITHMETIC,
    NESTED,
    NUMBERS,
    SCALARS,
    STRING,
    WINDOW,
    Type,
    Types,
    comparable,
    infer,
    name_of_call,
    shown,
)
from penstock.pipelines.spec import spark_sql, sql
from penstock.pipelines.spec.problems import nearest
from penstock.pipelines.spec.sql import Complaint

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ)
_TIME_WINDOWS = ("window", "session_window")
_NO_CONDITIONS = SCALARS - {"boolean", "string"}


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds in the session that will run the SQL."""

    ansi: bool = True
    """Spark's default rules about types. With other settings types are not checked."""
    more_functions: bool = False
    """Functions may be registered that only the session knows: unknown ones are not reported."""


Node = TypeVar("Node", bound=exp.Expr)
Tables = Mapping[str, Types | None]
"""By name in lower case; None if the columns are not known."""
Output = list[tuple[str, Type | None]] | None


def complaints(query: sql.Query, tables: Tables, rules: Rules) -> Iterator[Complaint]:
    """All errors of a query except columns that do not exist (`sql.unknown_columns`)."""
    yield from sql.unknown_types(query.text)
    for scope in traverse_scope(query.plain):
        tree = scope.expression
        if isinstance(tree, exp.SetOperation):
            yield from _set_operation(scope, tables)
        elif isinstance(tree, exp.Select):
            yield from _Select(scope, tables, rules, query.text).complaints()
    for node in query.plain.find_all(exp.Interval):
        yield from _interval(node, query.text)


def expression_complaints(text: str, tree: exp.Expr, columns: Types | None, rules: Rules) -> Iterator[Complaint]:
    """The same for an expression over one table: a condition, a key, a header."""
    row = _Row({"": columns}, {})
    shift = len("SELECT ")
    yield from sql.unknown_types(text)
    for complaint in _expressions(tree, row, rules):
        yield Complaint(complaint.message, max(0, complaint.index - shift))
    for call in aggregates(tree):
        message = f"an aggregate ({name_of_call(call)}) cannot stand here; compute it in a step with GROUP BY"
        yield Complaint(message, max(0, position(call) - shift))
    for node in tree.find_all(exp.Interval):
        yield from _interval(node, text)


def output_of(query: sql.Query, tables: Tables) -> Output:
    """The columns of a query and their types; None if not all are known."""
    scopes = traverse_scope(query.plain)
    return _output(scopes[-1], tables) if scopes else None


# -- Rows: what columns mean in a SELECT.


class _Row:
    def __init__(self, sources: Mapping[str, Types | None], laterals: Types) -> None:
        self.sources = sources
        self.laterals = laterals
        self.certain = all(columns is not None for columns in sources.values())

    def found(self, column: exp.Column) -> tuple[Type | None, list[exp.Identifier]]:
        """The type of a column, and the fields that are taken of it."""
        parts = [each for each in column.parts if isinstance(each, exp.Identifier)]
        names = [each.name.lower() for each in parts]
        if len(names) > 1 and names[0] in self.sources:
            columns = self.sources[names[0]]
            if columns is not None and names[1] in columns:
                return columns[names[1]], parts[2:]
        there = [columns for columns in self.sources.values() if columns is not None and names[0] in columns]
        if len(there) == 1 and self.certain:
            return there[0][names[0]], parts[1:]
        if not there and self.certain and names[0] in self.laterals:
            return self.laterals[names[0]], parts[1:]
        if not there and self.certain and sql.unmasked(names[0]) in _TIME_WINDOWS:
            return WINDOW, parts[1:]
        return None, []

    def type_of(self, column: exp.Column) -> Type | None:
        kind, fields = self.found(column)
        for each in fields:
            kind = kind.field(each.name) if kind is not None and kind.kind == "struct" else None
        return kind

    def owners(self, name: str) -> list[str]:
        return [table for table, columns in self.sources.items() if columns is not None and name in columns]


def _row(scope: Scope, tables: Tables) -> _Row:
    sources: dict[str, Types | None] = {}
    laterals: Types = {}
    for name, (_, source) in scope.selected_sources.items():
        if isinstance(source, Scope) and isinstance(source.expression, exp.Lateral):
            continue
        sources[name.lower()] = _source(source, tables)
    for lateral in scope.expression.args.get("laterals") or ():
        alias = lateral.args.get("alias")
        named = alias.args.get("columns") if alias is not None else None
        laterals.update({each.name.lower(): None for each in named or ()})
        if alias is not None:
            sources[alias.name.lower()] = {each.name.lower(): None for each in named} if named else None
    return _Row(sources, laterals)


def _source(source: exp.Expr | Scope, tables: Tables) -> Types | None:
    if isinstance(source, Scope):
        found = _output(source, tables)
        return dict(found) if found is not None else None
    if not isinstance(source, exp.Table) or source.args.get("pivots"):
        return None
    alias = source.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        return {each.name.lower(): None for each in alias.args["columns"]}
    return tables.get(source.name.lower())


def _output(scope: Scope, tables: Tables) -> Output:
    tree = scope.expression
    if isinstance(tree, exp.SetOperation):
        sides = [_output(each, tables) for each in scope.set_operation_scopes]
        if len(sides) != 2 or sides[0] is None or sides[1] is None or len(sides[0]) != len(sides[1]):
            return None
        pairs = zip(sides[0], sides[1], strict=True)
        return [(name, kind if kind == other else None) for (name, kind), (_, other) in pairs]
    if not isinstance(tree, exp.Select) or (tree.args.get("laterals") and tree.find(exp.Star) is not None):
        return None
    row = _row(scope, tables)
    made: list[tuple[str, Type | None]] = []
    for selected in tree.expressions:
        star = selected.this if isinstance(selected, exp.Column) else selected
        if isinstance(star, exp.Star):
            expanded = _star(star, selected.table.lower() if isinstance(selected, exp.Column) else "", tree, row)
            if expanded is None:
                return None
            made += expanded
        elif isinstance(selected, exp.Aliases):
            made += [(each.name.lower(), None) for each in selected.args["expressions"]]
        elif selected.alias_or_name:
            made.append((sql.unmasked(selected.alias_or_name.lower()), _selected(selected, row)))
        else:
            return None  # Spark makes a name of the expression
    return made


def _selected(selected: exp.Expr, row: _Row) -> Type | None:
    """An explode makes items of what it is given."""
    inner = selected.unalias()
    if isinstance(inner, exp.Anonymous) and name_of_call(inner) in ("explode", "explode_outer") and inner.expressions:
        array = infer(inner.expressions[0], row.type_of)
        return array.item if array is not None and array.kind == "array" else None
    return infer(selected, row.type_of)


def _star(star: exp.Star, table: str, tree: exp.Select, row: _Row) -> Output:
    """None if the columns are not known. The columns of USING are there once, so they are not known here."""
    joins = tree.args.get("joins") or ()
    if star.args.get("replace") or star.args.get("rename") or any(join.args.get("using") for join in joins):
        return None
    excepted = {each.name.lower() for each in star.args.get("except_") or ()}
    hidden = {join.alias_or_name.lower() for join in joins if (join.args.get("kind") or "") in ("SEMI", "ANTI")}
    made: list[tuple[str, Type | None]] = []
    for name, columns in row.sources.items():
        if (not table and name not in hidden) or name == table:
            if columns is None:
                return None
            made += [(column, kind) for column, kind in columns.items() if column not in excepted]
    return made


# -- One SELECT.


class _Select:
    def __init__(self, scope: Scope, tables: Tables, rules: Rules, text: str) -> None:
        self._tree = scope.expression
        self._row = _row(scope, tables)
        self._rules = rules
        self._text = text
        self._correlated = scope.is_subquery or bool(scope.outer_columns)

    def complaints(self) -> Iterator[Complaint]:
        tree = self._tree
        yield from _expressions(tree, self._row, self._rules)
        for clause, where, way_out in (
            ("where", "WHERE", "use HAVING, or a step of its own"),
            ("group", "GROUP BY", "compute it in a step of its own"),
        ):
            for call in aggregates(tree.args.get(clause)):
                yield Complaint(
                    f"an aggregate ({name_of_call(call)}) cannot stand in {where}; {way_out}", position(call)
                )
        for join in tree.args.get("joins") or ():
            for call in aggregates(join.args.get("on")):
                message = f"an aggregate ({name_of_call(call)}) cannot stand in ON; compute it in a step of its own"
                yield Complaint(message, position(call))
        if not self._correlated:
            yield from self._ambiguous()
            yield from self._grouping()
        if self._rules.ansi:
            yield from self._conditions()

    def _conditions(self) -> Iterator[Complaint]:
        tree = self._tree
        conditions = [("WHERE", tree.args.get("where")), ("HAVING", tree.args.get("having"))]
        found = [(name, clause.this) for name, clause in conditions if clause is not None]
        found += [("ON", join.args["on"]) for join in tree.args.get("joins") or () if join.args.get("on") is not None]
        for name, condition in found:
            kind = infer(condition, self._row.type_of)
            if kind is not None and kind.kind in _NO_CONDITIONS:
                message = f"{name} needs a condition, not {shown(condition, kind)}; compare it with something"
                yield Complaint(message, position(condition))

    def _ambiguous(self) -> Iterator[Complaint]:
        joins = self._tree.args.get("joins") or ()
        if not joins or any(join.args.get("using") or join.args.get("method") for join in joins):
            return  # USING and NATURAL make one column of two
        if any(join.args.get("kind") in ("SEMI", "ANTI") for join in joins):
            return
        aliases = {each.alias.lower() for each in self._tree.expressions if isinstance(each, exp.Alias)}
        seen = set()
        for column in _own(self._tree, exp.Column):
            if len(column.parts) > 1 or not isinstance(column.this, exp.Identifier):
                continue
            name = column.name.lower()
            owners = self._row.owners(name)
            ordered = column.find_ancestor(exp.Order, exp.Having, exp.Select)
            if isinstance(ordered, (exp.Order, exp.Having)) and name in aliases:
                continue
            if len(owners) > 1 and name not in seen:
                seen.add(name)
                ways = " or ".join(f"{owner}.{name}" for owner in owners)
                yield Complaint(f'"{name}" is a column of {" and ".join(owners)}; write {ways}', position(column))

    def _grouping(self) -> Iterator[Complaint]:
        tree = self._tree
        group = tree.args.get("group")
        calls = [call for each in tree.expressions for call in aggregates(each)]
        if group is None and not calls and not list(aggregates(tree.args.get("having"))):
            return
        if tree.find(exp.Window) is not None or (group is not None and group.args.get("all")):
            return
        grouped = self._grouped(group) if group is not None else set()
        aliases = {each.alias.lower() for each in tree.expressions if isinstance(each, exp.Alias)}
        loose: dict[str, int] = {}
        for clause in [*tree.expressions, tree.args.get("having")]:
            if isinstance(clause, exp.Star):
                columns = [name for types in self._row.sources.values() for name in types or ()]
                if self._row.certain and any(name not in grouped for name in columns):
                    message = "* selects columns that are neither in GROUP BY nor inside an aggregate; name the columns"
                    yield Complaint(message, position(clause))
                continue
            for column in _outside_aggregates(clause):
                names = {sql.unmasked(each.name.lower()) for each in column.parts}
                known = self._row.owners(column.parts[0].name.lower()) or len(names) > 1
                if clause is tree.args.get("having") and names & aliases:
                    continue
                if not names & grouped and (known or not names & aliases) and self._is_column(column):
                    loose.setdefault(column.parts[-1].name if len(names) > 1 else column.name, position(column))
        if loose:
            yield Complaint(_loose(list(loose), calls, group is not None), min(loose.values()))

    def _grouped(self, group: exp.Group) -> set[str]:
        """Names of all columns in GROUP BY: a column inside an expression may be selected inside the same."""
        items = list(group.expressions)
        for sets in ("cube", "rollup", "grouping_sets"):
            items += group.args.get(sets) or ()
        names: set[str] = set()
        by_alias = {each.alias.lower(): each.this for each in self._tree.expressions if isinstance(each, exp.Alias)}
        for item in items:
            if isinstance(item, exp.Literal) and not item.is_string and item.this.isdecimal():
                number = int(item.this) - 1
                item = self._tree.expressions[number] if number < len(self._tree.expressions) else item
            if isinstance(item, exp.Column) and item.name.lower() in by_alias:
                names |= _names(by_alias[item.name.lower()])
            names |= _names(item)
        return names

    def _is_column(self, column: exp.Column) -> bool:
        """Certainly of a table of this SELECT; what is not a column at all is reported elsewhere."""
        parts = [each.name.lower() for each in column.parts]
        if len(parts) > 1 and parts[0] in self._row.sources:
            columns = self._row.sources[parts[0]]
            return columns is not None and parts[1] in columns
        return bool(self._row.owners(parts[0]))


def _loose(names: list[str], calls: list[exp.Anonymous], grouped: bool) -> str:
    listed = ", ".join(f'"{name}"' for name in names)
    are = "are" if len(names) > 1 else "is"
    way = "add it to GROUP BY" if grouped else f"add GROUP BY {', '.join(names)}"
    way = way.replace("it", "them") if len(names) > 1 and grouped else way
    return f"{listed} {are} neither in GROUP BY nor inside an aggregate; {way}, or use max({names[0]})"


def _names(node: exp.Expr) -> set[str]:
    found = {sql.unmasked(part.name.lower()) for column in node.find_all(exp.Column) for part in column.parts}
    calls = {name_of_call(call) for call in node.find_all(exp.Anonymous)}
    return found | (calls & set(_TIME_WINDOWS))


def _outside_aggregates(node: exp.Expr | None) -> Iterator[exp.Column]:
    if node is None or isinstance(node, exp.Query):
        return
    if isinstance(node, exp.Anonymous) and spark_sql.is_aggregate(name_of_call(node)):
        return
    if isinstance(node, (exp.Filter, exp.WithinGroup)):
        return
    if isinstance(node, exp.Column):
        yield node
        return
    if isinstance(node, exp.Anonymous) and spark_sql.function(name_of_call(node)) is None:
        return  # it may be an aggregate of the user's
    for child in node.iter_expressions():
        yield from _outside_aggregates(child)


# -- Expressions.


def aggregates(node: exp.Expr | None) -> Iterator[exp.Anonymous]:
    """Calls of aggregates, without those of subqueries and of OVER."""
    if node is None:
        return
    for call in _own(node, exp.Anonymous):
        over = isinstance(call.parent, exp.Window) or isinstance(call.parent and call.parent.parent, exp.Window)
        if spark_sql.is_aggregate(name_of_call(call)) and not over:
            yield call


def _own(node: exp.Expr, kind: type[Node]) -> Iterator[Node]:
    """Nodes of this kind, without those of subqueries and hints."""
    for found in node.walk(prune=lambda each: each is not node and isinstance(each, (exp.Query, exp.Hint))):
        if isinstance(found, kind) and found.find_ancestor(exp.Hint) is None:
            yield found


def _expressions(tree: exp.Expr, row: _Row, rules: Rules) -> Iterator[Complaint]:
    reported: set[int] = set()
    for node in _own(tree, exp.Expr):
        if isinstance(node, exp.Anonymous):
            found = list(_call(node, row, rules))
        elif isinstance(node, exp.Column):
            found = list(_fields(node, row))
        elif rules.ansi:
            found = list(_operands(node, row))
        else:
            continue
        for complaint in found:
            if complaint.index not in reported:
                reported.add(complaint.index)
                yield complaint


def _call(call: exp.Anonymous, row: _Row, rules: Rules) -> Iterator[Complaint]:
    name = name_of_call(call)
    if isinstance(call.parent, exp.Dot):
        return  # of a catalog
    known = spark_sql.function(name)
    if known is None:
        if not rules.more_functions:
            yield Complaint(
                f'Spark has no function "{name}"; {nearest(name, spark_sql.function_names())}', position(call)
            )
        return
    arguments = [
        part for each in call.expressions for part in (each.expressions if isinstance(each, exp.Distinct) else [each])
    ]
    named = any(isinstance(each, (exp.Kwarg, exp.PropertyEQ, exp.Star)) for each in arguments)
    ordered = isinstance(call.parent, exp.WithinGroup)
    count = len(arguments)
    if not named and not ordered and (count < known.least or 0 <= known.most < count):
        yield Complaint(f"{name} takes {known.takes()}, not {count}", position(call))
        return
    if known.kind == "aggregate":
        for inner in (each for argument in arguments for each in aggregates(argument)):
            message = f"{name_of_call(inner)} cannot stand inside {name}: aggregate in one step, and again in the next"
            yield Complaint(message, position(inner))
    if name in _TIME_WINDOWS:
        yield from _time_window(name, arguments, row)
    elif rules.ansi and len(arguments) == 1:
        kinds = spark_sql.argument_kinds(name)
        given = infer(arguments[0], row.type_of)
        if kinds and given is not None and given.kind not in kinds and given.kind in SCALARS | NESTED:
            takes = ", ".join(each.upper() for each in kinds)
            yield Complaint(f"{name} takes {takes}, not {shown(arguments[0], given)}", position(arguments[0]))


def _time_window(name: str, arguments: list[exp.Expr], row: _Row) -> Iterator[Complaint]:
    given = infer(arguments[0], row.type_of)
    if given is not None and given.kind not in ("timestamp", "timestamp_ntz", "string", "date", "struct"):
        message = f"{name} needs a TIMESTAMP, not {shown(arguments[0], given)}"
        yield Complaint(message, position(arguments[0]))
    lengths: list[float] = []
    for argument in arguments[1:]:
        if not isinstance(argument, exp.Literal) or not argument.is_string:
            return
        try:
            interval = spark_sql.parse_interval(argument.this)
        except spark_sql.IntervalInvalid as error:
            yield Complaint(str(error), position(argument))
            return
        if interval.has_months:
            yield Complaint(f"'{argument.this}' has no fixed length; say it in days", position(argument))
            return
        lengths.append(interval.milliseconds)
    if name == "window" and lengths and lengths[0] <= 0:
        yield Complaint(f"'{arguments[1].name}' must be longer than nothing", position(arguments[1]))
    elif name == "window" and len(lengths) > 1 and not 0 < lengths[1] <= lengths[0]:
        message = f"windows that begin every '{arguments[2].name}' cannot be '{arguments[1].name}' long; swap the two"
        yield Complaint(message, position(arguments[2]))


def _fields(column: exp.Column, row: _Row) -> Iterator[Complaint]:
    kind, fields = row.found(column)
    above = column.parts[0].name
    for each in fields:
        if kind is None:
            return
        if kind.kind == "struct" and kind.fields is not None and each.name.lower() not in dict(kind.fields):
            names = [name for name, _ in kind.fields]
            yield Complaint(
                f'"{sql.unmasked(above)}" has no field "{each.name}"; {nearest(each.name, names)}', position(each)
            )
            return
        if kind.kind in SCALARS:
            yield Complaint(f'"{above}" is {kind} and has no field "{each.name}"', position(each))
            return
        above, kind = each.name, kind.field(each.name) if kind.kind == "struct" else None


def _operands(node: exp.Expr, row: _Row) -> Iterator[Complaint]:
    if isinstance(node, _COMPARISONS):
        yield from _compared(node.this, [node.expression], row, node)
    elif isinstance(node, exp.In):
        yield from _compared(node.this, node.expressions, row, node)
    elif isinstance(node, exp.Between):
        yield from _compared(node.this, [node.args["low"], node.args["high"]], row, node)
    elif type(node) in ARITHMETIC:
        left, right = infer(node.this, row.type_of), infer(node.expression, row.type_of)
        operator = ARITHMETIC[type(node)]
        if left is None or right is None or not {left.kind, right.kind} <= SCALARS | NESTED:
            return
        if spark_sql.operator_result(operator, left.kind, right.kind) is None:
            message = f"{shown(node.this, left)} {operator} {shown(node.expression, right)} is not possible"
            yield Complaint(f"{message}; {_instead(node.this, left, node.expression, right)}", position(node))


def _compared(left: exp.Expr, others: list[exp.Expr], row: _Row, node: exp.Expr) -> Iterator[Complaint]:
    kind = infer(left, row.type_of)
    for other in others:
        against = infer(other, row.type_of)
        if kind is not None and kind.kind in NESTED and isinstance(other, exp.Literal) and other.is_string:
            against = STRING  # which takes the type of a scalar on the other side, but of nothing else
        if kind is not None and against is not None and not comparable(kind, against):
            message = f"cannot compare {shown(left, kind)} with {shown(other, against)}"
            yield Complaint(f"{message}; {_instead(left, kind, other, against)}", position(node))
            return
        if kind is not None and kind.kind in NUMBERS and _is_text_of_no_number(other):
            message = (
                f"cannot compare {shown(left, kind)} with {sql.unmasked(other.sql(sql.DIALECT))}, which is no number"
            )
            yield Complaint(message, position(other))
            return


def _is_text_of_no_number(node: exp.Expr) -> bool:
    """Spark would read the text as a number when it compares, and fail."""
    if not (isinstance(node, exp.Literal) and node.is_string):
        return False
    try:
        float(sql.unmasked(node.name).strip().rstrip("dDfF"))
    except ValueError:
        return True
    return False


def _instead(left: exp.Expr, kind: Type, right: exp.Expr, against: Type) -> str:
    """What to write instead. No CAST makes a number or a text of a column with parts."""
    nested = [(node, each) for node, each in ((left, kind), (right, against)) if each.kind in NESTED]
    if len(nested) != 1:
        return "CAST one of them"
    ((node, each),) = nested
    name = sql.unmasked(node.sql(sql.DIALECT, comments=False))
    if each.kind == "struct" and each.fields:
        fields = [f"{name}.{field}" for field, _ in each.fields]
        return f"name one of its fields: {', '.join(fields[:6])}{', ...' if len(fields) > 6 else ''}"
    return f"name one of its {'values' if each.kind == 'map' else 'elements'}: {name}[...]"


def _interval(node: exp.Interval, text: str) -> Iterator[Complaint]:
    unit, value = node.args.get("unit"), node.this
    if isinstance(unit, exp.Var):
        found = re.search(rf"interval\b[^;]*?\b({re.escape(unit.name)})\b", text, re.IGNORECASE)
        problem = spark_sql.unit_problem(found[1] if found else unit.name)
        if problem is not None:
            yield Complaint(problem, found.start(1) if found else 0)
    elif unit is None and isinstance(value, exp.Literal) and value.is_string:
        try:
            spark_sql.parse_interval(value.this)
        except spark_sql.IntervalInvalid as error:
            found = re.search(re.escape(value.this), text)
            yield Complaint(str(error), found.start() if found else 0)


def _set_operation(scope: Scope, tables: Tables) -> Iterator[Complaint]:
    if scope.expression.args.get("by_name") or len(scope.set_operation_scopes) != 2:
        return
    left, right = (_output(each, tables) for each in scope.set_operation_scopes)
    if left is not None and right is not None and len(left) != len(right):
        word = type(scope.expression).__name__.upper()
        message = f"the sides of {word} have {len(left)} and {len(right)} columns; they need the same number"
        yield Complaint(message, position(scope.set_operation_scopes[1].expression))


def position(node: exp.Expr) -> int:
    """Of the first thing in a node whose position sqlglot keeps."""
    return min((int(each.meta["start"]) for each in node.walk() if "start" in each.meta), default=0)
