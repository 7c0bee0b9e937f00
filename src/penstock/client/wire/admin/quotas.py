"""Quotas of clients: how much a user, a client id or an address may use.

An entity is a dict: {"user": "alice"}, {"client-id": "reports"}, both together, or {"ip": "10.0.0.7"}. The name None is
the default: every user, client id or address without a quota of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.client.errors import raise_for
from penstock.client.wire.cluster import Cluster
from penstock.protocol.messages import alter_client_quotas as alter
from penstock.protocol.messages import describe_client_quotas as describe

EXACT, DEFAULT, ANY = 0, 1, 2


@dataclass(frozen=True, slots=True)
class EntityQuotas:
    entity: Mapping[str, str | None]
    values: Mapping[str, float]


class Quotas:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe(
        self,
        entity: Mapping[str, str | None] | None = None,
        *,
        any_of: Iterable[str] = (),
        strict: bool = False,
    ) -> list[EntityQuotas]:
        """Return the quotas of the entities that have these parts, and, of the types `any_of`, any name.

        Without arguments: all quotas. `strict`: only entities that have no other parts.
        """
        components = [
            describe.ComponentData(entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name)
            for kind, name in (entity or {}).items()
        ]
        components += [describe.ComponentData(entity_type=kind, match_type=ANY, match=None) for kind in any_of]
        request = describe.DescribeClientQuotasRequest(components=components, strict=strict)
        response = self._cluster.request(request, describe.DescribeClientQuotasResponse)
        raise_for(response.error_code, response.error_message, "cannot describe quotas")
        return [
            EntityQuotas(
                {part.entity_type: part.entity_name for part in entry.entity},
                {value.key: value.value for value in entry.values},
            )
            for entry in response.entries or ()
        ]

    def alter(
        self,
        entity: Mapping[str, str | None],
        values: Mapping[str, float] | None = None,
        *,
        remove: Iterable[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Set some quotas of an entity, remove others, and leave the rest."""
        changes = [alter.OpData(key=key, value=value) for key, value in (values or {}).items()]
        changes += [alter.OpData(key=key, remove=True) for key in remove]
        entry = alter.AlterClientQuotasRequestEntryData(
            entity=[alter.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
            ops=changes,
        )
        request = alter.AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
        response = self._cluster.request(request, alter.AlterClientQuotasResponse)
        (result,) = response.entries
        raise_for(result.error_code, result.error_message, f"cannot change the quotas of {entity_text(entity)}")


def entity_text(entity: Mapping[str, str | None]) -> str:
    return ", ".join(
        f"the default {kind}" if name is None else f"{kind} {name!r}" for kind, name in sorted(entity.items())
    )
