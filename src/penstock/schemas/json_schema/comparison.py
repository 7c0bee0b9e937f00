"""Whether a reader's schema accepts everything that a writer's schema accepts.

The differences have the names that Confluent's registry gives them, and its verdicts. Whether a property may be added
or removed depends on the content model: an *open* object may have held anything under the new name, so a property may
be removed but not added; in a *closed* one it is the reverse; a *partially open* one has a schema for names that it
does not list, and that is compared. `LENIENT` lets properties come and go in open and closed objects alike.

Some changes that Confluent does not look at are refused here, because a record that was valid would not be: other
`patternProperties`, `propertyNames`, `contains` and `if`. As in Confluent's, `required` counts for names that have a
property, and a default makes up for a property that is missing: the reader fills it in.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.schemas.json_schema.limits import numeric_changes, size_changes, text_changes
from penstock.schemas.json_schema.matching import largest_matching
from penstock.schemas.json_schema.nodes import (
    Anything,
    Array,
    Combined,
    Conditional,
    Content,
    Enumeration,
    Node,
    Not,
    Nothing,
    Numeric,
    Object,
    Reference,
    Text,
)
from penstock.schemas.json_schema.patterns import Patterns
from penstock.schemas.json_schema.policy import LENIENT_RULES, Policy
from penstock.schemas.steps import Comparison, Found, Incompatibility, Pairs, run, shortened


def compare(reader: Node, writer: Node, policy: Policy) -> list[str]:
    return [str(found) for found in run(_Comparison(policy).pair(writer, reader, "#"))]


class _Comparison:
    """`old` is the writer's and `new` the reader's; paths are the reader's."""

    def __init__(self, policy: Policy) -> None:
        self._allowed = LENIENT_RULES if policy is Policy.LENIENT else frozenset[str]()
        self._pairs = Pairs()
        self._patterns = Patterns()

    def _refused(self, path: str, rule: str, detail: str) -> list[Incompatibility]:
        return [] if rule in self._allowed else [Incompatibility(path, rule, detail)]

    def pair(self, old: Node, new: Node, path: str) -> Comparison[Found]:
        before, after = _target(old), _target(new)
        return self._pairs.verdict((before, after), lambda: self._compare(before, after, shortened(path)))

    def _optional(self, old: Node | None, new: Node | None, path: str, added: str) -> Comparison[Found]:
        """A schema that only one of them has: it may go, but not come, unless it accepts anything."""
        if new is None or isinstance(_target(new), Anything):
            return []
        if old is None:
            return self._refused(path, added, "the writer had no such rule")
        return (yield self.pair(old, new, path))

    def _compare(self, old: Node, new: Node, path: str) -> Comparison[Found]:
        if isinstance(new, Combined) and not isinstance(old, Combined):
            if (yield self._into_combined(old, new, path)):
                return []
        elif isinstance(old, Combined) and (yield self._from_combined(old, new, path)):
            return []
        match old, new:
            case Text(), Text():
                return self._limits(text_changes(old, new), path)
            case Numeric(), Numeric():
                return self._limits(numeric_changes(old, new), path)
            case Enumeration(), Enumeration() if old.const == new.const:
                return self._values(old, new, path)
            case Combined(), Combined():
                return (yield self._combined(old, new, path))
            case Not(), Not():
                return (yield self._not(old, new, path))
            case Conditional(), Conditional():
                changed = old.text != new.text
                return self._refused(path, "CONDITIONAL_CHANGED", "if, then or else changed") if changed else []
            case Object(), Object():
                return (yield self._object(old, new, path))
            case Array(), Array():
                return (yield self._array(old, new, path))
        return self._kinds(old, new, path)

    def _kinds(self, old: Node, new: Node, path: str) -> Found:
        same = type(old) is type(new) and not isinstance(new, Enumeration)  # a constant is not an enumeration
        if same or isinstance(old, Nothing) or isinstance(new, Anything):
            return []
        if old.connect_type == "bytes" and new.connect_type == "bytes":
            return []
        return self._refused(path, "TYPE_CHANGED", f"it was {_kind(old)} and is {_kind(new)}")

    def _limits(self, changes: Iterable[tuple[str, str, str]], path: str) -> Found:
        return [
            found
            for keyword, rule, detail in changes
            for found in self._refused(f"{path}/{keyword}" if keyword else path, rule, detail)
        ]

    def _values(self, old: Enumeration, new: Enumeration, path: str) -> Found:
        if old.values <= new.values:
            return []
        keyword = "const" if new.const else "enum"
        missing = ", ".join(sorted(old.values - new.values))
        rule = "ENUM_ARRAY_NARROWED" if new.values <= old.values else "ENUM_ARRAY_CHANGED"
        return self._refused(f"{path}/{keyword}", rule, f"{missing:.500} is not allowed any more")

    def _not(self, old: Not, new: Not, path: str) -> Comparison[Found]:
        """What is excluded now must have been excluded before."""
        found = yield self.pair(new.schema, old.schema, f"{path}/not")
        return self._refused(f"{path}/not", "NOT_TYPE_EXTENDED", "it excludes more than before") if found else []

    # Combinations

    def _into_combined(self, old: Node, new: Combined, path: str) -> Comparison[Found]:
        """Not empty if a part of a sum accepts all that the writer's does, so that the sum does, too."""
        if len(new.parts) == 1 or new.criterion != "allOf":
            for index, part in enumerate(new.parts):
                if not (yield self.pair(old, part, f"{path}/{new.criterion}/{index}")):
                    return _YES
        return []

    def _from_combined(self, old: Combined, new: Node, path: str) -> Comparison[Found]:
        """Not empty if what is accepted of a part of a product is accepted, so that all of the product is."""
        if isinstance(new, Combined):
            return []
        if len(old.parts) == 1 or old.criterion == "allOf":
            for part in old.parts:
                if not (yield self.pair(part, new, path)):
                    return _YES
        return []

    def _combined(self, old: Combined, new: Combined, path: str) -> Comparison[Found]:
        single_old, single_new = len(old.parts) == 1, len(new.parts) == 1
        widened = (
            old.criterion == new.criterion
            or new.criterion == "anyOf"
            or (single_old and (single_new or new.criterion == "oneOf"))
            or (single_new and old.criterion == "allOf")
        )
        if not widened:
            return self._refused(path, "COMBINED_TYPE_CHANGED", f"it was {old.criterion} and is {new.criterion}")
        found: list[Incompatibility] = []
        if len(old.parts) < len(new.parts) and new.criterion == "allOf":
            found += self._refused(f"{path}/allOf", "PRODUCT_TYPE_EXTENDED", "there is more that a value must be")
        if len(old.parts) > len(new.parts) and old.criterion != "allOf":
            found += self._refused(f"{path}/{new.criterion}", "SUM_TYPE_NARROWED", "there is less that a value may be")
        edges: list[list[int]] = []
        reasons: list[Incompatibility] = []
        for before in old.parts:
            edges.append([])
            for index, after in enumerate(new.parts):
                differences = yield self.pair(before, after, f"{path}/{new.criterion}/{index}")
                if not differences:
                    edges[-1].append(index)
                elif len(reasons) < _MAX_REASONS and type(_target(before)) is type(_target(after)):
                    reasons += differences
        if largest_matching(edges, len(new.parts)) < min(len(old.parts), len(new.parts)):
            detail = "not every part has a counterpart that accepts what it accepts"
            refused = self._refused(path, "COMBINED_TYPE_SUBSCHEMAS_CHANGED", detail)
            found += [*refused, *reasons[:_MAX_REASONS]]
        return found

    # Objects

    def _object(self, old: Object, new: Object, path: str) -> Comparison[Found]:
        found = [*self._required(old, new, path)]
        for name in dict.fromkeys((*old.properties, *new.properties)):
            at = f"{path}/properties/{name:.100}"
            if name not in new.properties:
                found += yield self._removed_property(old.properties[name], new, name, at)
            elif name not in old.properties:
                found += yield self._added_property(old, new, name, at)
            else:
                found += yield self.pair(old.properties[name], new.properties[name], at)
        found += yield self._pattern_properties(old, new, path)
        found += yield self._dependencies(old, new, path)
        found += yield self._content(old.content, new.content, path, "additionalProperties", "unevaluatedProperties")
        found += yield self._optional(
            old.property_names, new.property_names, f"{path}/propertyNames", "PROPERTY_NAMES_ADDED"
        )
        sizes = [
            *size_changes("maxProperties", "MAX_PROPERTIES", old.max_properties, new.max_properties, upper=True),
            *size_changes("minProperties", "MIN_PROPERTIES", old.min_properties, new.min_properties, upper=False),
        ]
        return [*found, *self._limits(sizes, path)]

    def _required(self, old: Object, new: Object, path: str) -> Found:
        found: list[Incompatibility] = []
        for name in sorted(new.required - old.required):
            # A name that only one of them describes is looked at where its property is added or removed.
            described = new.properties.get(name) if name in old.properties else None
            if described is not None and not described.has_default:
                detail = f"{name!r:.100} is required now, and has no default"
                found += self._refused(f"{path}/required/{name:.100}", "REQUIRED_ATTRIBUTE_ADDED", detail)
        return found

    def _removed_property(self, old: Node, new: Object, name: str, path: str) -> Comparison[Found]:
        if new.open:
            return []
        partial = self._partial(new, name)
        if partial is not None:
            found = yield self.pair(old, partial, path)
            if not found:
                return []
            rule = "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
            detail = "it is gone, and the schema of other properties does not accept it"
            return [*found, *self._refused(path, rule, detail)]
        if isinstance(_target(old), Nothing):
            return []
        return self._refused(
            path, "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", "it is gone, and nothing else is allowed"
        )

    def _added_property(self, old: Object, new: Object, name: str, path: str) -> Comparison[Found]:
        added = new.properties[name]
        required = name in new.required and not (name in old.required or added.has_default)
        if old.open:
            if isinstance(_target(added), Anything) and not required:
                return []
            if required:
                detail = "it is required, and the writer may have left it out or written anything"
                return self._refused(path, "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", detail)
            word = "REQUIRED_PROPERTY_WITH_DEFAULT" if name in new.required else "OPTIONAL_PROPERTY"
            detail = "the writer may have written anything under this name"
            return self._refused(path, f"{word}_ADDED_TO_OPEN_CONTENT_MODEL", detail)
        found: list[Incompatibility] = []
        partial = self._partial(old, name)
        if partial is not None:
            found += yield self.pair(partial, added, path)
            if found:
                rule = "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
                detail = "it is new, and does not accept what the writer's schema of other properties accepts"
                found += self._refused(path, rule, detail)
        if required:
            detail = "it is required, and the writer did not know it"
            found += self._refused(path, "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", detail)
        return found

    def _partial(self, schema: Object, name: str) -> Node | None:
        for pattern, described in schema.patterns.items():
            if self._patterns.finds(pattern, name):
                return described
        return schema.content.partial

    def _pattern_properties(self, old: Object, new: Object, path: str) -> Comparison[Found]:
        found: list[Incompatibility] = []
        for pattern in dict.fromkeys((*old.patterns, *new.patterns)):
            at = f"{path}/patternProperties/{pattern:.100}"
            if pattern in old.patterns and pattern in new.patterns:
                found += yield self.pair(old.patterns[pattern], new.patterns[pattern], at)
            elif pattern in old.patterns:
                found += yield self._removed_pattern(old.patterns[pattern], new, at)
            else:
                found += yield self._added_pattern(old, new.patterns[pattern], pattern, at)
        return found

    def _removed_pattern(self, old: Node, new: Object, path: str) -> Comparison[Found]:
        if new.content.open or isinstance(_target(old), Nothing):
            return []
        if new.content.partial is None:
            return self._refused(path, "PATTERN_PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", "it is gone")
        return (yield self.pair(old, new.content.partial, path))

    def _added_pattern(self, old: Object, new: Node, pattern: str, path: str) -> Comparison[Found]:
        if isinstance(_target(new), Anything):
            return []
        found: list[Incompatibility] = []
        for name, described in old.properties.items():
            if self._patterns.finds(pattern, name):
                found += yield self.pair(described, new, path)
        if old.content.partial is not None:
            found += yield self.pair(old.content.partial, new, path)
        elif old.content.open:
            detail = "the writer may have written anything under such a name"
            found += self._refused(path, "PATTERN_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", detail)
        return found

    def _dependencies(self, old: Object, new: Object, path: str) -> Comparison[Found]:
        found: list[Incompatibility] = []
        for name, needed in new.dependent_required.items():
            at = f"{path}/dependencies/{name:.100}"
            before = old.dependent_required.get(name)
            if before is None:
                found += self._refused(at, "DEPENDENCY_ARRAY_ADDED", f"with {name!r:.100}, others are required now")
            elif not needed <= before:
                rule = "DEPENDENCY_ARRAY_EXTENDED" if needed >= before else "DEPENDENCY_ARRAY_CHANGED"
                found += self._refused(at, rule, f"with {name!r:.100}, more is required than before")
        for name, described in new.dependent_schemas.items():
            at = f"{path}/dependencies/{name:.100}"
            found += yield self._optional(old.dependent_schemas.get(name), described, at, "DEPENDENCY_SCHEMA_ADDED")
        return found

    def _content(self, old: Content, new: Content, path: str, additional: str, unevaluated: str) -> Comparison[Found]:
        found: list[Incompatibility] = []
        at, rule = f"{path}/{additional}", _RULES[additional]
        if old.permitted and not new.permitted:
            found += self._refused(at, f"{rule}_REMOVED", "nothing else is allowed any more")
        elif old.permitted and new.schema is not None:
            if old.schema is None:
                found += self._refused(at, f"{rule}_NARROWED", "anything else was allowed")
            else:
                found += yield self.pair(old.schema, new.schema, at)
        if new.unevaluated is not None:
            found += yield self._unevaluated(
                old.unevaluated, new.unevaluated, f"{path}/{unevaluated}", _RULES[unevaluated]
            )
        return found

    def _unevaluated(self, old: Node | None, new: Node, path: str, rule: str) -> Comparison[Found]:
        if isinstance(old, Nothing) or isinstance(new, Anything):
            return []
        if isinstance(new, Nothing):
            return self._refused(path, f"{rule}_REMOVED", "nothing else is allowed any more")
        if isinstance(old, Anything | None):
            return self._refused(path, f"{rule}_NARROWED", "anything else was allowed")
        return (yield self.pair(old, new, path))

    # Arrays

    def _array(self, old: Array, new: Array, path: str) -> Comparison[Found]:
        found = [*(yield self._optional(old.all_items, new.all_items, f"{path}/items", "SCHEMA_ADDED"))]
        for position in range(max(len(old.items), len(new.items))):
            at = f"{path}/items/{position}"
            if position >= len(new.items):
                found += yield self._removed_item(old.items[position], new, at)
            elif position >= len(old.items):
                found += yield self._added_item(old, new.items[position], at)
            else:
                found += yield self.pair(old.items[position], new.items[position], at)
        found += yield self._content(old.content, new.content, path, "additionalItems", "unevaluatedItems")
        found += yield self._optional(old.contains, new.contains, f"{path}/contains", "CONTAINS_ADDED")
        if new.unique and not old.unique:
            found += self._refused(f"{path}/uniqueItems", "UNIQUE_ITEMS_ADDED", "items must be different now")
        sizes = [
            *size_changes("maxItems", "MAX_ITEMS", old.max_items, new.max_items, upper=True),
            *size_changes("minItems", "MIN_ITEMS", old.min_items, new.min_items, upper=False),
            *size_changes("maxContains", "MAX_CONTAINS", old.max_contains, new.max_contains, upper=True),
            *size_changes("minContains", "MIN_CONTAINS", old.min_contains, new.min_contains, upper=False),
        ]
        return [*found, *self._limits(sizes, path)]

    def _removed_item(self, old: Node, new: Array, path: str) -> Comparison[Found]:
        if new.content.open:
            return []
        partial = new.content.partial
        if partial is not None:
            found = yield self.pair(old, partial, path)
            if not found:
                return []
            rule = "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
            return [*found, *self._refused(path, rule, "it is gone, and the schema of other items does not accept it")]
        if isinstance(_target(old), Nothing):
            return []
        return self._refused(path, "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", "it is gone, and nothing else is allowed")

    def _added_item(self, old: Array, new: Node, path: str) -> Comparison[Found]:
        if old.content.open:
            if isinstance(_target(new), Anything):
                return []
            detail = "the writer may have written anything at this position"
            return self._refused(path, "ITEM_ADDED_TO_OPEN_CONTENT_MODEL", detail)
        if old.content.partial is None:
            return []
        found = yield self.pair(old.content.partial, new, path)
        if not found:
            return []
        rule = "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        detail = "it is new, and does not accept what the writer's schema of other items accepts"
        return [*found, *self._refused(path, rule, detail)]


_YES: Found = (Incompatibility("", "", ""),)
_MAX_REASONS = 10
_RULES = {
    "additionalProperties": "ADDITIONAL_PROPERTIES",
    "unevaluatedProperties": "UNEVALUATED_PROPERTIES",
    "additionalItems": "ADDITIONAL_ITEMS",
    "unevaluatedItems": "UNEVALUATED_ITEMS",
}


def _target(node: Node) -> Node:
    if isinstance(node, Reference):
        assert node.target is not None
        return node.target
    return node


def _kind(node: Node) -> str:
    match node:
        case Combined():
            return f"a combination by {node.criterion}"
        case Numeric():
            return "an integer" if node.integer else "a number"
        case Enumeration():
            return "a constant" if node.const else "an enumeration"
    return _KINDS.get(type(node).__name__, type(node).__name__.lower())


_KINDS = {
    "Anything": "anything",
    "Array": "an array",
    "Conditional": "a condition",
    "Not": "an exclusion",
    "Object": "an object",
    "Text": "a string",
    "Boolean": "a boolean",
}
