"""The declaration of a setting, as a field of a frozen dataclass.

    retention_ms: int = long(604_800_000, "How long ...", at_least(-1))

The Kafka name is the attribute's name with dots for underscores. The parser of `server.properties`, the validation of
topic configs, DescribeConfigs and the reference documentation are derived from these classes; `settings_of` collects
their settings. An invalid value is a `KafkaError(INVALID_CONFIG)` whose message names the setting and the value, in
Kafka's words where users are likely to search for them.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import partial
from typing import Any, Final

from penstock.model.errors import ErrorCode, KafkaError


class Type(IntEnum):
    """The type of a setting, numbered as in DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Scope(Enum):
    """Where a broker setting may be changed while the broker runs."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Required:
    """The default of a setting that has none."""

    def __repr__(self) -> str:
        return "required"


REQUIRED: Final = Required()

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

_BITS = {Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}
_COMMA = re.compile(r"\s*,\s*")

# A parsed value: bool, int, float, str, tuple[str, ...], frozenset[str] or None.
Value = Any
Validator = Callable[[str, Value], None]


def invalid(name: str, value: object, why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, f"Invalid value {value} for configuration {name}: {why}")


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting with its Kafka name."""

    name: str
    type: Type
    default: Value
    documentation: str
    validator: Validator | None = None
    scope: Scope = Scope.READ_ONLY
    # For a topic setting: the broker settings that provide its default, of which the first that is set wins; each with
    # the factor that converts its unit to milliseconds.
    synonyms: tuple[tuple[str, int], ...] = ()
    as_set: bool = False
    # Hidden from DescribeConfigs and the documentation; for tests, like Kafka's internal settings.
    internal: bool = False

    @property
    def sensitive(self) -> bool:
        return self.type in (Type.PASSWORD, Type.UNKNOWN)

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    def parse(self, text: str) -> Value:
        value = self._parse(text.strip())
        if self.validator is not None:
            self.validator(self.name, value)
        return frozenset(value) if self.as_set else value

    def format(self, value: Value) -> str | None:
        """Return the text that `parse` reads as `value`."""
        if value is None or value is REQUIRED:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, frozenset):
            return ",".join(sorted(value))
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)

    def _parse(self, text: str) -> Value:
        kind = self.type
        if kind is Type.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise invalid(self.name, text, "Expected value to be either true or false")
            return text.lower() == "true"
        if kind in _BITS:
            return self._parse_integer(text)
        if kind is Type.DOUBLE:
            try:
                return float(text)
            except ValueError:
                raise invalid(self.name, text, f"Not a number of type {kind.name}") from None
        if kind is Type.LIST:
            return tuple(_COMMA.split(text)) if text else ()
        return text

    def _parse_integer(self, text: str) -> int:
        # Java's parser accepts a sign and ASCII digits; Python's int() would also accept "1_000" and other digits.
        if not re.fullmatch(r"[+-]?[0-9]+", text):
            raise invalid(self.name, text, f"Not a number of type {self.type.name}")
        value = int(text) if len(text) <= 20 else LONG_MAX + 1
        limit = 1 << (_BITS[self.type] - 1)
        if not -limit <= value < limit:
            raise invalid(self.name, text, f"Not a number of type {self.type.name}")
        return value


def setting(
    kind: Type,
    default: Value,
    documentation: str,
    validator: Validator | None = None,
    *,
    scope: Scope = Scope.READ_ONLY,
    synonyms: Iterable[str | tuple[str, int]] = (),
    as_set: bool = False,
    internal: bool = False,
) -> Any:
    """Declare a dataclass field that is a setting; the name comes from the attribute."""
    pairs = tuple((entry, 1) if isinstance(entry, str) else entry for entry in synonyms)
    if as_set and isinstance(default, tuple):
        default = frozenset(default)
    declared = Setting("", kind, default, documentation, validator, scope, pairs, as_set, internal)
    if default is REQUIRED:
        return dataclasses.field(metadata={"setting": declared})
    return dataclasses.field(default=default, metadata={"setting": declared})


boolean = partial(setting, Type.BOOLEAN)
string = partial(setting, Type.STRING)
integer = partial(setting, Type.INT)
long = partial(setting, Type.LONG)
double = partial(setting, Type.DOUBLE)
strings = partial(setting, Type.LIST)


def attribute_of(name: str) -> str:
    return name.replace(".", "_")


def settings_of(cls: type) -> dict[str, Setting]:
    """Return the settings that a dataclass declares, by Kafka name, in order of declaration."""
    found: dict[str, Setting] = {}
    for field in dataclasses.fields(cls):
        declared = field.metadata.get("setting")
        if declared is not None:
            name = field.name.replace("_", ".")
            found[name] = dataclasses.replace(declared, name=name)
    return found


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for the error about an unknown name; empty if no known name is close."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.75)
    return f" (did you mean {matches[0]}?)" if matches else ""


def parse_overrides(overrides: Mapping[str, str], definitions: Mapping[str, Setting], kind: str) -> dict[str, Value]:
    """Return values by attribute name; refuse unknown names with the nearest match."""
    values = {}
    for name, text in overrides.items():
        definition = definitions.get(name)
        if definition is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"Unknown {kind} config name: {name}{nearest(name, definitions)}"
            )
        values[attribute_of(name)] = definition.parse(text)
    return values


# -- validators ----------------------------------------------------------------------------------------------------


def at_least(minimum: float) -> Validator:
    def check(name: str, value: Value) -> None:
        if value < minimum:
            raise invalid(name, value, f"Value must be at least {minimum}")

    return check


def between(minimum: float, maximum: float) -> Validator:
    def check(name: str, value: Value) -> None:
        # "not (a <= b)" also refuses NaN.
        if not value >= minimum:
            raise invalid(name, value, f"Value must be at least {minimum}")
        if not value <= maximum:
            raise invalid(name, value, f"Value must be no more than {maximum}")

    return check


def between_or(minimum: int, maximum: int, extra: int) -> Validator:
    def check(name: str, value: Value) -> None:
        if value != extra and not minimum <= value <= maximum:
            raise invalid(name, value, f"Value must be between {minimum} and {maximum} or equal to {extra}")

    return check


def one_of(*allowed: str, ignore_case: bool = False) -> Validator:
    def check(name: str, value: Value) -> None:
        if (value.lower() if ignore_case else value) not in allowed:
            raise invalid(name, value, f"String must be one of: {', '.join(allowed)}")

    return check


def distinct(*allowed: str, empty: bool = True) -> Validator:
    """Accept a list without duplicates or empty entries; only of the allowed words, if any are given."""

    def check(name: str, values: Value) -> None:
        if not values and not empty:
            words = f"[{', '.join(allowed)}]" if allowed else "any non-empty value"
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"Configuration '{name}' must not be empty. Valid values include: {words}"
            )
        if len(set(values)) != len(values):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Configuration '{name}' values must not be duplicated.")
        for value in values:
            if not value:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Configuration '{name}' values must not be empty.")
            if allowed and value not in allowed:
                raise invalid(name, value, f"String must be one of: {', '.join(allowed)}")

    return check


def throttled_replicas(name: str, values: Value) -> None:
    if values == ("*",) or all(re.fullmatch(r"([0-9]+:[0-9]+)?", value) for value in values):
        return
    raise invalid(
        name,
        ",".join(values),
        f"{name} must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
    )
