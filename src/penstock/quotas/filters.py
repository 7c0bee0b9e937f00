"""Filters of DescribeClientQuotas: which entities a request asks for."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from penstock.model.errors import ErrorCode, KafkaError
from penstock.quotas.entity import IP, TYPES, Entity, Quotas, order


class Match(IntEnum):
    EXACT = 0
    DEFAULT = 1
    ANY = 2


class Component(NamedTuple):
    entity_type: str
    match_type: int
    match: str | None


def matching(quotas: Quotas, components: Iterable[Component], *, strict: bool) -> list[Entity]:
    """The entities that match every component; `strict`: that have no other types besides.

    KafkaError for an invalid filter.
    """
    exact, any_name = _checked(components)
    wanted = len(exact) + len(any_name)

    def matches(entity: Entity) -> bool:
        names = dict(entity)
        return (
            all(kind in names and names[kind] == name for kind, name in exact.items())
            and all(kind in names for kind in any_name)
            and (not strict or len(names) == wanted)
        )

    return sorted((entity for entity in quotas if matches(entity)), key=order)


def _checked(components: Iterable[Component]) -> tuple[dict[str, str | None], set[str]]:
    exact: dict[str, str | None] = {}
    any_name: set[str] = set()
    for kind, match_type, match in components:
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in exact or kind in any_name:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if match_type == Match.EXACT:
            if match is None:
                raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            exact[kind] = match
        elif match_type in (Match.DEFAULT, Match.ANY):
            if match is not None:
                name = "MATCH_TYPE_DEFAULT" if match_type == Match.DEFAULT else "MATCH_TYPE_SPECIFIED"
                raise _invalid(f"Request specified {name}, but also specified a match string.")
            if match_type == Match.DEFAULT:
                exact[kind] = None
            else:
                any_name.add(kind)
        else:
            raise _invalid(f"Unknown match type {match_type}")
    kinds = exact.keys() | any_name
    if IP in kinds and len(kinds) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component."
        )
    return exact, any_name


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
