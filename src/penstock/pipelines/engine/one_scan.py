"""Unites frames over one input as a plan that scans the input once.

Spark computes `first.union(second)` by reading the input of both twice. Here every row of the input becomes an array:
what it turns into in each of the frames. The array is exploded, and each row has the number of its frame in the column
`output`.

A frame is a chain of projections, filters and explodes over the input. The nodes that all chains share stay as they
are. From where they part, the columns of all of them stand side by side in one wide row:

- A *filter* becomes a boolean column, the guard of everything above it.
- A *projection* adds its columns, each computed only where the guard is true: an expression may fail on a row that the
  filter below it had taken out. Attributes keep their ids, so expressions need not be rewritten.
- An *explode* first splits the row in two: one goes on through the explode, the other stands for all other frames.

A guard does not shield a Python function: Spark calls those before it looks at the CASE around them. So a frame with
functions behind a filter cannot be united, except for those that return NULL for NULL, as the encoders of `encoding`
do: their argument is a column of its own, which the guard makes NULL.

Chains are read from Spark's analysed plans, and the new plan is made of their expressions, over py4j. `NotOnePlan` is
raised where a plan has another shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OUTPUT = "output"
NULL_FOR_NULL = "penstock_null_for_null"
"""The name of Python functions that return NULL for NULL and so may be called on rows of other frames."""

_NAMES_ONLY = ("SubqueryAlias", "View")
_LINKS = ("Project", "Filter", "Generate")
_GENERATORS = ("Explode", "PosExplode", "Inline")


class NotOnePlan(Exception):
    """The frames cannot be united; the message says why."""


def united(frames: Sequence[DataFrame]) -> DataFrame:
    """The rows of all frames, which have the same columns, with the frame's position in the column `output`."""
    from pyspark.sql import functions as f

    if len(frames) == 1:
        return frames[0].select(f.lit(0).alias(OUTPUT), "*")
    wide = _Wide(frames[0].sparkSession, [_chain(number, frame) for number, frame in enumerate(frames)])
    rows = wide.rows()
    together = rows.select(f.explode(f.array(*rows.columns)).alias("row"))
    return together.filter(f.col("row").isNotNull()).select("row.*")


@dataclass(slots=True)
class _Chain:
    number: int
    nodes: list[Any]
    """From the input upwards."""
    below: Any
    """The input."""
    output: list[Any]

    @property
    def following(self) -> Any:
        return self.nodes[0] if self.nodes else None


@dataclass(slots=True)
class _Branch:
    chains: list[_Chain]
    guard: Any = None
    """A boolean attribute; None: every row belongs to it."""

    def parts(self) -> list[tuple[Any, _Branch]]:
        """By their next node, which is taken away; chains that end here have None."""
        found: list[tuple[Any, _Branch]] = []
        for chain in self.chains:
            node = chain.following
            part = next((part for other, part in found if _is_same(node, other)), None)
            if part is None:
                part = _Branch([], self.guard)
                found.append((node, part))
            part.chains.append(_Chain(chain.number, chain.nodes[1:], chain.below, chain.output))
        return found


class _Wide:
    """The plan of the wide rows, while it grows."""

    def __init__(self, session: SparkSession, chains: list[_Chain]) -> None:
        self._session = session
        self._catalyst = _Catalyst(session)
        if not all(_is_same(chain.below, chains[0].below) for chain in chains):
            raise NotOnePlan("its outputs are not made of the same rows")
        trunk = _Branch(chains)
        self._plan = chains[0].below
        while len(parts := trunk.parts()) == 1 and parts[0][0] is not None:
            self._plan, trunk = parts[0]
        self._trunk = trunk
        self._later: list[tuple[Any, _Branch]] = []
        self._ended: dict[int, Any] = {}

    def rows(self) -> DataFrame:
        """One column for each frame: the struct of its row, or NULL."""
        from pyspark.sql import DataFrame

        self._spread(self._trunk)
        while self._later:
            node, branch = self._later.pop()
            self._explode(node, branch)
            self._spread(branch)
        columns = [self._ended[number] for number in sorted(self._ended)]
        plan = self._catalyst.project(columns, self._plan)
        return DataFrame(self._catalyst.dataset(plan), self._session)

    def _add(self, aliases: list[Any]) -> list[Any]:
        """Their attributes."""
        if not aliases:
            return []
        self._plan = self._catalyst.with_columns(aliases, self._plan)
        return [each.toAttribute() for each in aliases]

    def _spread(self, branch: _Branch) -> None:
        catalyst = self._catalyst
        for node, part in branch.parts():
            kind = _kind(node) if node is not None else ""
            if kind == "Generate":
                self._later.append((node, part))  # when all other frames have their columns
                continue
            if kind == "Filter":
                condition = node.condition()
                self._check_functions(condition, part)
                (part.guard,) = self._add([catalyst.alias("guard", catalyst.holds(condition, part.guard))])
            elif kind == "Project":
                self._add([self._guarded(each, part) for each in _new_columns(node)])
            else:
                for chain in part.chains:
                    struct = catalyst.struct(chain.number, chain.output)
                    (self._ended[chain.number],) = self._add(
                        [catalyst.alias(f"row_{chain.number}", catalyst.where(part.guard, struct))]
                    )
                continue
            self._spread(part)

    def _guarded(self, alias: Any, branch: _Branch) -> Any:
        self._check_functions(alias.child(), branch)
        return self._catalyst.with_child(alias, self._catalyst.where(branch.guard, alias.child()))

    def _explode(self, node: Any, branch: _Branch) -> None:
        catalyst = self._catalyst
        generator = node.generator()
        self._check_functions(generator, branch)
        if _kind(generator) not in _GENERATORS:
            raise NotOnePlan(f"{generator.prettyName()} makes several rows of one")
        self._plan, split = catalyst.split(self._plan, branch.guard)
        masked = self._add(
            [
                *(catalyst.alias(each.name(), catalyst.unless(split, each)) for each in self._ended.values()),
                *(catalyst.alias("guard", catalyst.unless(split, part.guard)) for _, part in self._later),
            ]
        )
        for number in self._ended:
            self._ended[number] = masked.pop(0)
        for _, part in self._later:
            part.guard = masked.pop(0)
        (collection,) = _items(generator.children())
        self._plan = catalyst.exploded(node, catalyst.where(split, collection), self._plan)
        branch.guard = split
        if not node.outer():
            has_rows = catalyst.holds(catalyst.is_not_empty(collection), split)
            (branch.guard,) = self._add([catalyst.alias("guard", has_rows)])

    def _check_functions(self, expression: Any, branch: _Branch) -> None:
        catalyst = self._catalyst
        if catalyst.has_subquery(expression):
            raise NotOnePlan("it has a subquery")
        if branch.guard is None or not catalyst.has_function(expression):
            return
        if _kind(expression) != "PythonUDF" or expression.name() != NULL_FOR_NULL:
            raise NotOnePlan("Spark would call its Python functions on rows of other outputs")


@dataclass(slots=True)
class _Catalyst:
    """Makes expressions and nodes of Spark's plans."""

    session: SparkSession
    _jvm: Any = field(init=False)
    _expressions: Any = field(init=False)
    _logical: Any = field(init=False)
    _none: Any = field(init=False)
    _literals: Any = field(init=False)
    _python_udf: Any = field(init=False)
    _subquery: Any = field(init=False)
    _to_seq: Any = field(init=False)

    def __post_init__(self) -> None:  # looked up once: every name on the way is a call to Java
        self._jvm = self.session._jvm
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        self._expressions = catalyst.expressions
        self._logical = catalyst.plans.logical
        self._none = getattr(getattr(self._jvm.scala, "None$"), "MODULE$")
        self._literals = getattr(getattr(self._expressions, "Literal$"), "MODULE$")
        patterns = getattr(getattr(catalyst.trees, "TreePattern$"), "MODULE$")
        self._python_udf, self._subquery = patterns.PYTHON_UDF(), patterns.PLAN_EXPRESSION()
        self._to_seq = self._jvm.PythonUtils.toSeq

    def dataset(self, plan: Any) -> Any:
        datasets = getattr(getattr(self._jvm.org.apache.spark.sql.classic, "Dataset$"), "MODULE$")
        return datasets.ofRows(self.session._jsparkSession, plan)

    def project(self, columns: list[Any], child: Any) -> Any:
        return self._logical.Project(self._seq(columns), child)

    def with_columns(self, columns: list[Any], child: Any) -> Any:
        return self._logical.Project(child.output().appendedAll(self._seq(columns)), child)

    def alias(self, name: str, expression: Any) -> Any:
        ids = getattr(getattr(self._expressions, "NamedExpression$"), "MODULE$")
        return self._expressions.Alias(expression, name, ids.newExprId(), self._seq([]), self._none, self._seq([]))

    def with_child(self, node: Any, child: Any) -> Any:
        return node.withNewChildren(self._seq([child]))

    def where(self, guard: Any, expression: Any) -> Any:
        """The expression where the guard is true, else NULL."""
        if guard is None:
            return expression
        return self._expressions.If(guard, expression, self._expressions.Literal(None, expression.dataType()))

    def unless(self, split: Any, expression: Any) -> Any:
        """NULL, or false, where `split` is true."""
        if expression is None:
            return self._expressions.Not(split)
        other = self._literals.FalseLiteral()
        if not expression.dataType().equals(other.dataType()):
            other = self._expressions.Literal(None, expression.dataType())
        return self._expressions.If(split, other, expression)

    def holds(self, condition: Any, guard: Any) -> Any:
        """Never NULL: a filter takes out rows for which its condition is NULL."""
        literals = self._literals
        holds = self._expressions.EqualNullSafe(condition, literals.TrueLiteral())
        return holds if guard is None else self._expressions.If(guard, holds, literals.FalseLiteral())

    def struct(self, number: int, attributes: list[Any]) -> Any:
        literals = self._literals
        parts = [literals.apply(OUTPUT), literals.apply(number)]
        for each in attributes:
            parts += [literals.apply(each.name()), each]
        return self._expressions.CreateNamedStruct(self._seq(parts))

    def split(self, child: Any, guard: Any) -> tuple[Any, Any]:
        """Two rows of each for which the guard is true; the attribute is true in the second of them."""
        literals = self._literals
        both = self._array([literals.FalseLiteral(), literals.TrueLiteral()])
        if guard is not None:
            both = self._expressions.If(guard, both, self._array([literals.FalseLiteral()]))
        attribute = self.alias("split", literals.FalseLiteral()).toAttribute()
        generator = self._expressions.Explode(both)
        plan = self._logical.Generate(generator, self._seq([]), False, self._none, self._seq([attribute]), child)
        return plan, attribute

    def exploded(self, node: Any, collection: Any, child: Any) -> Any:
        """As `node` does it, but a row without elements stays, with NULLs."""
        generator = self.with_child(node.generator(), collection)
        columns = self._seq([each.withNullability(True) for each in _items(node.generatorOutput())])
        return self._logical.Generate(generator, self._seq([]), True, node.qualifier(), columns, child)

    def is_not_empty(self, collection: Any) -> Any:
        size = self._expressions.Size(collection, False)
        return self._expressions.GreaterThan(size, self._literals.apply(0))

    def has_function(self, expression: Any) -> bool:
        return bool(expression.containsPattern(self._python_udf))

    def has_subquery(self, expression: Any) -> bool:
        return bool(expression.containsPattern(self._subquery))

    def _array(self, elements: list[Any]) -> Any:
        return self._expressions.CreateArray(self._seq(elements), False)

    def _seq(self, items: list[Any]) -> Any:
        return self._to_seq(items)


def _chain(number: int, frame: DataFrame) -> _Chain:
    node: Any = frame._jdf.queryExecution().analyzed()
    output = _items(node.output())
    nodes: list[Any] = []
    while (kind := _kind(node)) in _LINKS or kind in _NAMES_ONLY:
        if kind in _LINKS:
            nodes.insert(0, node)
        node = node.children().head()
    return _Chain(number, nodes, node, output)


def _new_columns(project: Any) -> list[Any]:
    columns = project.projectList()
    if columns.equals(project.output()):
        return []  # it only leaves columns out
    return [each for each in _items(columns) if _kind(each) == "Alias"]


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _is_same(node: Any, other: Any) -> bool:
    if node is None or other is None:
        return node is other
    return bool(node.equals(other))


def _items(sequence: Any) -> list[Any]:
    found = []
    iterator = sequence.iterator()
    while iterator.hasNext():
        found.append(iterator.next())
    return found
