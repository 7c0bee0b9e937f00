"""Levels of compatibility: which of two schemas must be able to read what the other one wrote."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from penstock.schemas.json_schema.policy import Policy
from penstock.schemas.json_schema.schema import JsonSchema
from penstock.schemas.model import ParsedSchema
from penstock.schemas.steps import MAX_FOUND, MAX_STEPS, TooManySteps


class Compatibility(StrEnum):
    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def transitive(self) -> bool:
        """The new schema is checked against all earlier ones, not only the latest."""
        return self.value.endswith("_TRANSITIVE")

    @property
    def backward(self) -> bool:
        """The new schema reads what earlier ones wrote."""
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def forward(self) -> bool:
        """Earlier schemas read what the new one writes."""
        return self.value.startswith(("FORWARD", "FULL"))


def incompatibilities(reader: ParsedSchema, writer: ParsedSchema, policy: Policy = Policy.STRICT) -> list[str]:
    """Why `reader` cannot read all that `writer` wrote, one message for each place; empty if it can.

    The policy is for JSON schemas."""
    if reader.schema_type != writer.schema_type:
        return [f"SCHEMA_TYPE_CHANGED: a {reader.schema_type} schema does not read {writer.schema_type}"]
    try:
        if isinstance(reader, JsonSchema):
            found = reader.incompatibilities(writer, policy)
        else:
            found = reader.incompatibilities(writer)
    except TooManySteps:
        return [f"TOO_LARGE: the schemas cannot be compared in {MAX_STEPS} steps"]
    return found if len(found) <= MAX_FOUND else [*found[:MAX_FOUND], f"and {len(found) - MAX_FOUND} more"]


def check(
    level: Compatibility,
    new: ParsedSchema,
    previous_newest_first: Sequence[ParsedSchema],
    policy: Policy = Policy.STRICT,
) -> list[str]:
    """Why `new` may not follow the earlier schemas at this level; empty if it may.

    The check ends at the first earlier schema that does not fit, so messages are about one schema."""
    earlier = previous_newest_first if level.transitive else previous_newest_first[:1]
    for previous in earlier:
        messages = []
        if level.backward:
            found = incompatibilities(new, previous, policy)
            messages += [f"the new schema cannot read earlier data: {why}" for why in found]
        if level.forward:
            found = incompatibilities(previous, new, policy)
            messages += [f"an earlier schema cannot read new data: {why}" for why in found]
        if messages:
            return messages
    return []
