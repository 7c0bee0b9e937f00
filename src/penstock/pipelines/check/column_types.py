"""The types of columns and expressions, as far as they are certain.

None stands for a type that is not known; whatever is made of it is not known either, and nothing is reported of it. A
type is of a *kind* (`int`, `timestamp`, `struct`, ...): the tables of Spark speak of kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from penstock.pipelines.check import codecs
from penstock.pipelines.spec import schemas, spark_sql, sql
from penstock.pipelines.spec.model import Decoding, Source, TopicSource

NESTED = frozenset(("array", "map", "struct"))
NUMBERS = ("int", "bigint", "float", "double", "decimal")
_TIMES = ("date", "timestamp", "timestamp_ntz", "interval")
SCALARS = frozenset(("string", "boolean", "binary", *NUMBERS, *_TIMES))


@dataclass(frozen=True, slots=True)
class Type:
    kind: str
    fields: tuple[tuple[str, Type | None], ...] | None = None
    """Of a struct, with names in lower case; None if they are not known."""
    item: Type | None = None
    """Of an array, or of the values of a map."""

    def field(self, name: str) -> Type | None:
        return dict(self.fields or ()).get(name.lower())

    def __str__(self) -> str:
        return self.kind.upper()


Types = dict[str, Type | None]
"""By the name of a column, in lower case."""
Lookup = Callable[[exp.Column], Type | None]

TIMESTAMP, DATE, BOOLEAN = Type("timestamp"), Type("date"), Type("boolean")
STRING, INT, BIGINT = Type("string"), Type("int"), Type("bigint")
WINDOW = Type("struct", (("start", TIMESTAMP), ("end", TIMESTAMP)))
_HEADERS = Type("array", item=Type("struct", (("key", STRING), ("value", Type("binary")))))

_TRUTHS = (
    exp.Boolean, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.And, exp.Or, exp.Not,
    exp.In, exp.Between,
    exp.Is, exp.Like, exp.ILike, exp.RegexpLike, exp.Exists,
)  # fmt: skip
ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}
_FIRST = frozenset(("coalesce", "nvl", "ifnull", "greatest", "least"))
_SHELLS = (exp.Alias, exp.Paren, exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.Window)


def types_of_source(source: Source, directory: str) -> Types:
    """Of the columns whose types are known."""
    if not isinstance(source, TopicSource):
        return _ddl(source.schema) if source.schema else {}
    metadata: Types = {
        "_key": STRING if source.key == "string" else Type("binary"),
        "_topic": STRING,
        "_partition": INT,
        "_offset": BIGINT,
        "_timestamp": TIMESTAMP,
        "_headers": _HEADERS,
    }
    return {**types_of_values(source.value, directory), **metadata}


def types_of_values(coding: Decoding, directory: str) -> Types:
    if coding.format in ("string", "bytes"):
        return {"value": STRING if coding.format == "string" else Type("binary")}
    try:
        if coding.format == "json":
            return _ddl(schemas.text(coding, directory))
        struct = _ddl(f"value {codecs.codec(coding, directory).spark_type()}")["value"]
        return dict(struct.fields or ()) if struct is not None else {}
    except (schemas.SchemaInvalid, sql.SqlInvalid):  # reported where schemas are checked
        return {}


def _ddl(text: str) -> Types:
    try:
        return {name.lower(): type_of(kind) for name, kind in sql.parsed_types(text).items()}
    except sql.SqlInvalid:
        return {}


def type_of(declared: exp.DataType) -> Type | None:
    """Of a type in CAST or CREATE TABLE."""
    word = declared.sql(sql.DIALECT).partition("(")[0].partition("<")[0].partition(" ")[0]
    kind = spark_sql.kind_of_type(word)
    if kind is None or kind == "interval":  # of which there are two that do not mix
        return None
    inner = [each for each in declared.expressions if isinstance(each, (exp.DataType, exp.ColumnDef))]
    if kind == "struct" and inner:
        named = [(each.name.lower(), each.kind) for each in inner if isinstance(each, exp.ColumnDef)]
        return Type(kind, tuple((name, type_of(each) if each is not None else None) for name, each in named))
    if kind in ("array", "map") and inner and isinstance(inner[-1], exp.DataType):
        return Type(kind, item=type_of(inner[-1]))
    return Type(kind)


def infer(node: exp.Expr | None, lookup: Lookup) -> Type | None:  # noqa: C901
    """The type of an expression."""
    if node is None:
        return None
    if isinstance(node, exp.Column):
        return lookup(node)
    if isinstance(node, _SHELLS):
        return infer(node.this, lookup)
    if isinstance(node, exp.Cast):  # and TRY_CAST
        return type_of(node.to) if isinstance(node.to, exp.DataType) else None
    if isinstance(node, exp.Anonymous):
        return _call(node, lookup)
    if isinstance(node, _TRUTHS):
        return BOOLEAN
    if isinstance(node, exp.Literal):
        return None if node.is_string else Type("int" if node.this.isdecimal() and len(node.this) < 10 else "decimal")
    if type(node) in ARITHMETIC:
        left, right = infer(node.this, lookup), infer(node.expression, lookup)
        if left is None or right is None:
            return None
        kind = spark_sql.operator_result(ARITHMETIC[type(node)], left.kind, right.kind)
        return Type(kind) if kind else None
    if isinstance(node, exp.Neg):
        return infer(node.this, lookup)
    if isinstance(node, exp.Dot):
        inner = infer(node.this, lookup)
        return inner.field(node.expression.name) if inner is not None and inner.kind == "struct" else None
    if isinstance(node, exp.Bracket):
        inner = infer(node.this, lookup)
        return inner.item if inner is not None else None
    if isinstance(node, exp.Case):
        return _common([each.args.get("true") for each in node.args["ifs"]] + [node.args.get("default")], lookup)
    if isinstance(node, exp.If):
        return _common([node.args.get("true"), node.args.get("false")], lookup)
    if isinstance(node, exp.CurrentTimestamp):
        return TIMESTAMP
    return DATE if isinstance(node, exp.CurrentDate) else None


def name_of_call(call: exp.Anonymous) -> str:
    """In lower case."""
    name = call.this.name if isinstance(call.this, exp.Identifier) else str(call.this)
    return sql.unmasked(name.lower())


def _call(call: exp.Anonymous, lookup: Lookup) -> Type | None:
    name = name_of_call(call)
    arguments: list[exp.Expr] = [each for each in call.expressions if isinstance(each, exp.Expr)]
    if name in ("window", "session_window"):
        return WINDOW
    if name == "window_time":
        return TIMESTAMP
    if name in ("struct", "named_struct"):
        return Type("struct", _struct(arguments, lookup) if name == "struct" else None)
    if name in ("array", "collect_list", "collect_set"):
        return Type("array", item=infer(arguments[0], lookup) if arguments else None)
    if name in _FIRST:
        return _common(arguments, lookup)
    kinds = spark_sql.argument_kinds(name)
    if kinds is not None and len(arguments) == 1:
        given = infer(arguments[0], lookup)
        if given is None:
            return _always(name)
        kind = kinds.get(given.kind)
        return (given if kind == given.kind else Type(kind)) if kind else None
    return _always(name)


def _always(name: str) -> Type | None:
    found = spark_sql.function(name)
    kind = found.result.partition("(")[0] if found is not None else ""
    return Type(kind) if kind in SCALARS else None


def _struct(arguments: list[exp.Expr], lookup: Lookup) -> tuple[tuple[str, Type | None], ...] | None:
    names = [each.alias_or_name.lower() for each in arguments]
    if not all(names) or any(isinstance(each, exp.Star) for each in arguments):
        return None
    return tuple((name, infer(each, lookup)) for name, each in zip(names, arguments, strict=True))


def _common(nodes: Sequence[exp.Expr | None], lookup: Lookup) -> Type | None:
    """The type of all of them, if it is the same. NULL is of any type."""
    found = [infer(each, lookup) for each in nodes if each is not None and not isinstance(each, exp.Null)]
    return found[0] if found and found[0] is not None and all(each == found[0] for each in found) else None


def comparable(left: Type, right: Type) -> bool:
    """Types that the tables do not speak of are taken to be."""
    if not {left.kind, right.kind} <= SCALARS | NESTED:
        return True
    return spark_sql.operator_result("=", left.kind, right.kind) is not None


def shown(node: exp.Expr, kind: Type) -> str:
    """`amount (DOUBLE)`."""
    text = sql.unmasked(node.sql(sql.DIALECT, comments=False))
    return f"{text if len(text) <= 40 else text[:37] + '...'} ({kind})"


def with_types(names: tuple[str, ...], types: Mapping[str, Type | None]) -> Types:
    return {name: types.get(name) for name in names}
