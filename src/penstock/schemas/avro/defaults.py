"""Whether a default, which is JSON, is a value of its field's type."""

from __future__ import annotations

from penstock.schemas.avro.types import NO_DEFAULT, Array, Map, Record, Type, Union

_INTEGERS = {"int": 2**31, "long": 2**63}


class Defaults:
    """A default of a record takes the defaults of the fields that it lacks, so one default may be asked for in many
    places: it is looked at once. One that is part of itself has no end, so it is no default."""

    def __init__(self) -> None:
        # By identity: defaults live as long as their schema.
        self._known: dict[tuple[int, Type], bool] = {}

    def fits(self, default: object, wanted: Type) -> bool:
        key = (id(default), wanted)
        if key not in self._known:
            self._known[key] = False
            self._known[key] = self._fits(default, wanted)
        return self._known[key]

    def _fits(self, default: object, wanted: Type) -> bool:
        match wanted:
            case Union():
                # Of any of its branches: Java has asked no more since Avro 1.9.
                return any(self.fits(default, branch) for branch in wanted.branches)
            case Record():
                return isinstance(default, dict) and all(
                    self.fits(default.get(field.name, field.default), field.type) for field in wanted.fields
                )
            case Array():
                return isinstance(default, list) and all(self.fits(item, wanted.items) for item in default)
            case Map():
                return isinstance(default, dict) and all(self.fits(value, wanted.values) for value in default.values())
        return default is not NO_DEFAULT and _fits_simple(default, wanted.kind)


def _fits_simple(default: object, kind: str) -> bool:
    match kind:
        case "null":
            return default is None
        case "boolean":
            return isinstance(default, bool)
        case "int" | "long":
            bound = _INTEGERS[kind]
            return isinstance(default, int) and not isinstance(default, bool) and -bound <= default < bound
        case "float" | "double":
            return isinstance(default, (int, float)) and not isinstance(default, bool)
    return isinstance(default, str)  # string, and bytes, fixed and enum as text
