"""The ACLs of the cluster, by id and by content."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from penstock.model.ids import Uuid
from penstock.security.acls import Acl


@dataclass(frozen=True, slots=True)
class AclsImage:
    """Immutable: `MetadataDelta` copies it if it changes. No two ids have the same entry."""

    entries: Mapping[Uuid, Acl] = field(default_factory=dict)
    ids: Mapping[Acl, Uuid] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Acl]:
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self.ids)
