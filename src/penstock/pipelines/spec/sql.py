"""Analyses SQL without Spark.

sqlglot parses the text in Spark's dialect, and only parses it: Spark always gets the text that the user wrote. If
sqlglot knows less than Spark, nothing is reported; `validate` must never refuse what would run.

A query keeps the source row if each of its rows comes from exactly one row of one table and can carry that row's
coordinates along: one SELECT from one stream, joined at most to lookups, without aggregates, DISTINCT or LIMIT. A
hidden column, inserted before its FROM, carries them (`carrying`). A step that cannot carry the column cannot have dead
letters.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]  # in a way of its own

from penstock.pipelines.spec import spark_sql
from penstock.pipelines.spec.problems import nearest

Columns = tuple[str, ...] | None
"""Names in lower case, in order; None if they are not known."""

DIALECT = "spark"
SOURCE_ROW = "__source"
"""The hidden column: the record a row comes from."""

# sqlglot treats `window` as a keyword, but not after a dot. A name of the same length keeps all positions.
_WINDOW = re.compile(r"(?<!\.)\bwindow(?=\s*[(.])", re.IGNORECASE)
_WINDOW_STANDS_AS = "wind0w"
_STANDS_FOR_WINDOW = re.compile(_WINDOW_STANDS_AS, re.IGNORECASE)
_TIME_WINDOWS = {_WINDOW_STANDS_AS, "window", "session_window", "window_time"}
_STATEFUL_FUNCTIONS = {_WINDOW_STANDS_AS, "session_window"}


# sqlglot would print what it cannot parse on stderr; Penstock reports that itself.
logging.getLogger("sqlglot").setLevel(logging.ERROR)


_SparkParser: Any = Spark.Parser


class _Plain(Spark):
    """Spark's dialect in which a call is a name and its arguments. sqlglot knows functions of many databases, and
    renames and counts arguments by its own rules; here Spark's tables decide."""

    class Parser(_SparkParser):  # type: ignore[misc]  # sqlglot sets it
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parser
            for name, parser in _SparkParser.FUNCTION_PARSERS.items()
            if name in ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTR", "SUBSTRING", "POSITION", "OVERLAY")
        }
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parser for name, parser in _SparkParser.NO_PAREN_FUNCTION_PARSERS.items() if name != "TRANSFORM"
        }


_PLAIN = _Plain()
_KEYWORDS = {word for words in Spark.Tokenizer.KEYWORDS for word in words.split()}


class SqlInvalid(ValueError):
    """Not SQL; `index` is the position in the text."""

    def __init__(self, message: str, index: int) -> None:
        super().__init__(shown(message))
        self.index = index


@dataclass(frozen=True, slots=True)
class Complaint:
    message: str
    index: int
    name: str = ""
    """Of the column that does not exist, in lower case."""


@dataclass(frozen=True, slots=True)
class Query:
    text: str
    tree: exp.Query
    plain: exp.Query
    """The same, with calls as they are written: a name and its arguments."""
    tables: dict[str, int]
    """The tables it reads, in lower case, without its own (WITH), and where each is first named."""
    stateful: bool
    """It aggregates or removes duplicates: over a stream, rows of earlier batches matter."""
    loses_row: str
    """Why it does not keep the source row; empty if it does."""
    sees_batch: str
    """The construct that would see the rows of one batch and not of the stream; empty if there is none."""
    multiplies: bool
    """One row may become several."""


def parse_query(text: str) -> Query:
    plains = _parse(text)
    if len(plains) > 1:
        raise SqlInvalid("one query is needed here, not several statements", text.find(";") + 1)
    plain = plains[0]
    if not isinstance(plain, exp.Query):
        raise SqlInvalid(f"a query is needed here (SELECT ...), not {plain.key.upper()}", 0)
    # What sqlglot has against the arguments of a function is not reported: Spark's table is checked instead.
    tree = sqlglot.parse(_masked(text), dialect=DIALECT, error_level=ErrorLevel.IGNORE)[0]
    assert isinstance(tree, exp.Query)
    tables: dict[str, int] = {}
    for scope in traverse_scope(tree):
        for source in scope.sources.values():
            if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier) and not source.db:
                tables.setdefault(source.name.lower(), int(source.this.meta.get("start", 0)))
    stateful = _is_stateful(tree)
    multiplies = bool(tree.args.get("laterals")) or tree.find(exp.Join, exp.UDTF, exp.Explode) is not None
    return Query(text, tree, plain, tables, stateful, _loses_row(tree, stateful), _sees_batch(tree), multiplies)


@cache
def check_expression(text: str) -> exp.Expression:
    """A single expression of SQL."""
    statements = _parse(f"SELECT {text}", shift=len("SELECT "))
    tree = statements[0]
    if len(statements) > 1 or not isinstance(tree, exp.Select) or tree.args.get("from_") or len(tree.expressions) != 1:
        raise SqlInvalid("one expression is needed here", 0)
    made: exp.Expression = tree.expressions[0]
    return made


def columns_in(expression: str) -> list[str]:
    """The names of the columns in an expression, with the fields of structs that it names; none if it has a form that
    only Spark can read."""
    try:
        found = [each for each in check_expression(expression).find_all(exp.Column) if not _in_lambda(each)]
    except SqlInvalid:
        return []
    return list(dict.fromkeys(unmasked(".".join(part.name for part in each.parts)) for each in found))


def parse_columns(text: str) -> dict[str, bool]:
    """Names of columns as in CREATE TABLE, in their order, and whether they may be NULL."""
    return {
        each.name: not any(isinstance(constraint.kind, exp.NotNullColumnConstraint) for constraint in each.constraints)
        for each in _column_definitions(text)
    }


def column_types(text: str) -> dict[str, str]:
    """Names of columns as in CREATE TABLE, in their order, and their types."""
    return {each.name: each.kind.sql(DIALECT) for each in _column_definitions(text) if each.kind is not None}


def parsed_types(text: str) -> dict[str, exp.DataType]:
    """The same, parsed."""
    return {each.name: each.kind for each in _column_definitions(text) if isinstance(each.kind, exp.DataType)}


def identifier(name: str) -> str:
    """A name as it is written in SQL: in backquotes, unless it is plain and no keyword."""
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and name.upper() not in _KEYWORDS
    return name if plain else f"`{name.replace('`', '``')}`"


def unmasked(text: str) -> str:
    return re.sub(_WINDOW_STANDS_AS, "window", text, flags=re.IGNORECASE)


def _column_definitions(text: str) -> list[exp.ColumnDef]:
    prefix = "CREATE TABLE t ("
    for name, word, index in _declared_types(text):
        if spark_sql.kind_of_type(word) is None:
            raise SqlInvalid(f'column "{name}": {type_problem(word)}', index)
    statements = _parse(f"{prefix}{text.rstrip().rstrip(',')})", shift=len(prefix))
    schema = statements[0].this if isinstance(statements[0], exp.Create) else None
    columns: dict[str, exp.ColumnDef] = {}
    for each in schema.expressions if isinstance(schema, exp.Schema) else ():
        if not isinstance(each, exp.ColumnDef) or each.kind is None:
            name = each.name or each.sql(DIALECT)
            raise SqlInvalid(f'column "{name}" has no type; write it as "{name} STRING"', 0)
        if each.name.lower() in map(str.lower, columns):
            raise SqlInvalid(f'column "{each.name}" is there twice', 0)
        columns[each.name] = each
    if len(statements) > 1 or not columns:
        raise SqlInvalid("columns are needed here, such as: id BIGINT NOT NULL, at TIMESTAMP", 0)
    return list(columns.values())


def _declared_types(text: str) -> Iterator[tuple[str, str, int]]:
    """Column, name of its type or of a type inside, and position: what Spark would read as types."""
    depth, name = 0, ""
    tokens = sqlglot.tokenize(text, dialect=DIALECT)
    for before, token in zip([None, *tokens], tokens, strict=False):
        if before is None or (depth == 0 and before.token_type is TokenType.COMMA):
            name = token.text
            continue
        inner = before.token_type in (TokenType.LT, TokenType.COLON) and depth > 0
        is_field = token.end + 1 < len(text) and text[token.end + 1 :].lstrip().startswith(":")
        if token.text.isidentifier() and not is_field and (inner or (depth == 0 and before.text == name)):
            yield name, token.text, token.start
        if token.token_type is not TokenType.STRING:
            depth += sum(map(token.text.count, "<(")) - sum(map(token.text.count, ">)"))


def carrying(query: Query, stream: str) -> str:
    """The text of a query that keeps the source row of the table `stream`, with the hidden column among its results."""
    tree = query.tree
    assert isinstance(tree, exp.Select)
    alias = next(
        (
            table.alias_or_name
            for table in [tree.args["from_"].this, *(join.this for join in tree.args.get("joins") or ())]
            if isinstance(table, exp.Table) and table.name.lower() == stream.lower()
        ),
        stream,
    )
    for selected in tree.expressions:
        qualified = isinstance(selected, exp.Column) and isinstance(selected.this, exp.Star)
        if isinstance(selected, exp.Star) or (qualified and selected.table.lower() == alias.lower()):
            return query.text
    depth = 0
    for token in sqlglot.tokenize(_masked(query.text), dialect=DIALECT):
        depth += _nesting(token)
        if token.token_type is TokenType.FROM and depth == 0:
            column = f", `{alias}`.`{SOURCE_ROW}` "
            return query.text[: token.start] + column + query.text[token.start :]
    raise AssertionError(f"a query without FROM keeps no row: {query.text}")


def output_columns(query: Query, tables: Mapping[str, Columns]) -> Columns:
    """Names of the columns of a query over tables whose columns may or may not be known."""
    scopes = traverse_scope(query.tree)
    return _columns_of(scopes[-1], tables) if scopes else None


def unknown_columns(query: Query, tables: Mapping[str, Columns]) -> Iterator[Complaint]:
    """Columns that certainly do not exist."""
    for scope in traverse_scope(query.tree):
        if isinstance(scope.expression, exp.Select):
            yield from _unknown_in(scope, tables)


def unknown_in_expression(expression: exp.Expression, known: Columns) -> Iterator[Complaint]:
    """The same for an expression over the columns of one table; positions are in the text of the expression."""
    if known is None or expression.find(exp.Query) is not None:
        return
    for column in expression.find_all(exp.Column):
        first = column.parts[0]
        if not isinstance(first, exp.Identifier) or _in_lambda(column):
            continue
        name = shown(first.name)
        if name.lower() not in known:
            index = int(first.meta.get("start", 0)) - len("SELECT ")
            message = f'no column "{name}"; {nearest(name, known)}'
            yield Complaint(message, max(0, index), name.lower())


def shown(text: str) -> str:
    """For messages: as the user wrote it, with `window` by its name."""
    return _STANDS_FOR_WINDOW.sub(lambda found: "WINDOW" if found[0].isupper() else "window", text)


# -- Inside.


def _parse(text: str, shift: int = 0) -> list[exp.Expr]:
    try:
        statements = [each for each in sqlglot.parse(_masked(text), dialect=_PLAIN) if each is not None]
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        context = f"{first.get('start_context', '')}"
        index = text.find(context) + len(context) if context and context in text else _index(text, first)
        word = "window" if first.get("highlight") == _WINDOW_STANDS_AS else str(first.get("highlight") or "")
        near = f' near "{word}"' if word else ""
        description = str(first.get("description", "it cannot be read"))
        if description.lower().startswith("expected type"):
            raise SqlInvalid(type_problem(word), max(0, index - shift)) from None
        if "<class" in description:
            description = "something is missing"
        description = description.rpartition(" / ")[2].lower()
        raise SqlInvalid(f"not SQL: {description}{near}", max(0, index - shift)) from None
    except SqlglotError:
        raise SqlInvalid("not SQL: a quote or a comment is not closed", 0) from None
    if not statements:
        raise SqlInvalid("there is no SQL here", 0)
    return statements


_ELSEWHERE = {
    "text": "STRING", "datetime": "TIMESTAMP", "timestamptz": "TIMESTAMP", "number": "DECIMAL", "bool": "BOOLEAN",
    "int8": "BIGINT", "int64": "BIGINT", "int32": "INT", "float64": "DOUBLE", "bytes": "BINARY", "blob": "BINARY",
    "json": "STRING", "uuid": "STRING",
}  # fmt: skip
"""Types of other databases, and what they are called in Spark."""


def type_problem(word: str) -> str:
    spark = _ELSEWHERE.get(word.lower())
    hint = f'did you mean "{spark}"?' if spark else nearest(word, spark_sql.type_names())
    return f'Spark has no type "{word}"; {hint}'


def unknown_types(text: str) -> Iterator[Complaint]:
    """Types in CAST and `::` that Spark does not have, though other databases do."""
    depth, casts = 0, list[int]()
    tokens = sqlglot.tokenize(_masked(text), dialect=DIALECT)
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        depth += _nesting(token)
        if token.token_type is TokenType.L_PAREN and before is not None and before.text.upper() in ("CAST", "TRY_CAST"):
            casts.append(depth)
        elif token.token_type is TokenType.R_PAREN and casts and casts[-1] > depth:
            casts.pop()
        named = casts and casts[-1] == depth and token.token_type is TokenType.ALIAS
        written = text[token.start : token.start + 2] == "::"  # the tokenizer makes one of 1.0D, too
        if after is None or not (named or (token.token_type is TokenType.DCOLON and written)):
            continue
        if after.text.isidentifier() and spark_sql.kind_of_type(after.text) is None:
            yield Complaint(type_problem(after.text), after.start)


def _index(text: str, error: Mapping[str, object]) -> int:
    line, column = error.get("line"), error.get("col")
    if not isinstance(line, int) or not isinstance(column, int):
        return 0
    before = text.split("\n")[: line - 1]
    return sum(len(each) + 1 for each in before) + max(0, column - len(str(error.get("highlight") or "")))


def _masked(text: str) -> str:
    return _WINDOW.sub(_WINDOW_STANDS_AS, text)


def _nesting(token: Token) -> int:
    if token.token_type is TokenType.L_PAREN:
        return 1
    return -1 if token.token_type is TokenType.R_PAREN else 0


def _is_stateful(tree: exp.Query) -> bool:
    for select in tree.find_all(exp.Select):
        if select.args.get("group") or select.args.get("distinct") or select.args.get("having"):
            return True
        for each in select.expressions:
            for function in each.find_all(exp.AggFunc):
                if function.find_ancestor(exp.Window, exp.Select) is select:
                    return True
    unions = tree.find_all(exp.SetOperation)
    return any(not isinstance(each, exp.Union) or bool(each.args.get("distinct")) for each in unions)


def _loses_row(tree: exp.Query, stateful: bool) -> str:
    if isinstance(tree, exp.SetOperation):
        return "it is a UNION, EXCEPT or INTERSECT"
    if not isinstance(tree, exp.Select) or tree.args.get("with_"):
        return "it has a WITH"
    if stateful:
        return "it aggregates or takes away duplicates"
    if tree.args.get("limit") or tree.args.get("offset"):
        return "it has a LIMIT"
    if tree.find(exp.Window) is not None:
        return "it has a window function (OVER)"
    table = tree.args.get("from_")
    if table is None or not isinstance(table.this, exp.Table) or table.this.args.get("pivots"):
        return "it reads from a subquery"
    return ""


def _sees_batch(tree: exp.Query) -> str:
    if tree.find(exp.Limit, exp.Offset) is not None:
        return "LIMIT"
    return "a window function (OVER)" if tree.find(exp.Window) is not None else ""


def _columns_of(scope: Scope, tables: Mapping[str, Columns]) -> Columns:
    tree = scope.expression
    if isinstance(tree, exp.SetOperation):
        return _columns_of(scope.set_operation_scopes[0], tables) if scope.set_operation_scopes else None
    if not isinstance(tree, exp.Select):
        return None
    if tree.args.get("laterals") and tree.find(exp.Star) is not None:
        return None
    names: list[str] = []
    for selected in tree.expressions:
        star = selected.this if isinstance(selected, exp.Column) else selected
        if isinstance(star, exp.Star):
            wanted = selected.table.lower() if isinstance(selected, exp.Column) else None
            for name, source in scope.sources.items():
                if wanted is None or name.lower() == wanted:
                    columns = _source_columns(source, tables)
                    if columns is None or star.args.get("replace") or star.args.get("rename"):
                        return None
                    excepted = {each.name.lower() for each in star.args.get("except_") or ()}
                    names += [column for column in columns if column not in excepted]
        elif isinstance(selected, exp.Aliases):
            names += [each.name.lower() for each in selected.args["expressions"]]
        elif selected.alias_or_name:
            names.append(selected.alias_or_name.lower())
        else:
            return None  # an expression without a name: Spark generates one
    return tuple("window" if name == _WINDOW_STANDS_AS else name for name in names)


def _source_columns(source: exp.Expression | Scope, tables: Mapping[str, Columns]) -> Columns:
    if isinstance(source, Scope):
        return _columns_of(source, tables)
    if not isinstance(source, exp.Table) or source.args.get("pivots"):
        return None
    alias = source.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        return tuple(each.name.lower() for each in alias.args["columns"])
    return tables.get(source.name.lower())


def _unknown_in(scope: Scope, tables: Mapping[str, Columns]) -> Iterator[Complaint]:  # noqa: C901
    tree = scope.expression
    by_table: dict[str, Columns] = {}
    for name, source in scope.sources.items():
        if not (isinstance(source, Scope) and isinstance(source.expression, exp.Lateral)):
            by_table[name.lower()] = _source_columns(source, tables)
    if scope.is_subquery or scope.outer_columns or not by_table:
        return  # a correlated subquery may name columns of the queries around it
    known: set[str] = set(_TIME_WINDOWS)
    certain = True
    for columns in by_table.values():
        certain = certain and columns is not None
        known.update(columns or ())
    for lateral in tree.args.get("laterals") or ():
        alias = lateral.args.get("alias")
        if alias is None or not alias.args.get("columns"):
            certain = False
        else:
            known.update(each.name.lower() for each in alias.args["columns"])
            known.add(alias.name.lower())
    for selected in tree.expressions:
        if isinstance(selected, exp.Alias):
            known.add(selected.alias.lower())
        elif isinstance(selected, exp.Aliases):
            known.update(each.name.lower() for each in selected.args["expressions"])
    for column in scope.columns:
        if column.find_ancestor(exp.Query) is not tree:
            continue  # belongs to a subquery, which is checked separately
        first = column.parts[0]
        if not isinstance(first, exp.Identifier) or isinstance(column.this, exp.Star) or _in_lambda(column):
            continue
        name, index = first.name.lower(), int(first.meta.get("start", 0))
        table = by_table.get(name) if len(column.parts) > 1 else None
        if len(column.parts) > 1 and name in by_table:
            second = column.parts[1]
            if table is not None and second.name.lower() not in table and name not in known:
                index = int(second.meta.get("start", index))
                message = f'"{first.name}" has no column "{second.name}"; {nearest(second.name, table)}'
                yield Complaint(message, index, second.name.lower())
        elif certain and name not in known:
            candidates = {*known, *by_table} - _TIME_WINDOWS - {""}
            yield Complaint(f'no column "{first.name}"; {nearest(first.name, candidates)}', index, name)


def _in_lambda(column: exp.Column) -> bool:
    return column.find_ancestor(exp.Lambda) is not None
