"""ACLs: who may, or may not, do what to which resources, from which hosts; and the filters that select ACLs.

Types are Kafka's, numbered as on the wire. An ACL that other software wrote may have numbers unknown here; such an ACL
is kept and matches nothing that this software asks for.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from penstock.model.ids import Uuid
from penstock.protocol.messages.metadata_records import AccessControlEntryRecord
from penstock.security.authorizer import Operation, ResourceKind

EVERY_NAME: Final = "*"
EVERYBODY: Final = "User:*"


class PatternType(IntEnum):
    UNKNOWN = 0
    ANY = 1  # in filters: any pattern of exactly this name
    MATCH = 2  # in filters: every pattern that covers the name
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """One entry. Two entries with the same fields are the same entry."""

    kind: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int

    @classmethod
    def from_record(cls, record: AccessControlEntryRecord) -> Acl:
        return cls(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )

    def to_record(self, acl_id: Uuid) -> AccessControlEntryRecord:
        return AccessControlEntryRecord(
            id=acl_id,
            resource_type=self.kind,
            resource_name=self.name,
            pattern_type=self.pattern_type,
            principal=self.principal,
            host=self.host,
            operation=self.operation,
            permission_type=self.permission,
        )

    def __str__(self) -> str:
        """As in Kafka's audit log."""
        return (
            f"{self.principal} has {name_of(Permission, self.permission)} permission for operations: "
            f"{name_of(Operation, self.operation)} from hosts: {self.host} on {name_of(ResourceKind, self.kind)} "
            f"{name_of(PatternType, self.pattern_type)} {self.name}"
        )

    def covers(self, name: str) -> bool:
        """Whether a resource of this name, of the right kind, is subject to the entry."""
        if self.pattern_type == PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.pattern_type == PatternType.LITERAL and self.name in (name, EVERY_NAME)


class AclFilter(NamedTuple):
    """Selects ACLs. None, and ANY, leave a field open."""

    kind: int = ResourceKind.ANY
    name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = Operation.ANY
    permission: int = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        return (
            self.kind in (ResourceKind.ANY, acl.kind)
            and self._matches_pattern(acl)
            and (self.principal is None or self.principal == acl.principal)
            and (self.host is None or self.host == acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type == PatternType.MATCH:
            return acl.covers(self.name)
        return self.name == acl.name


def name_of(kind: type[IntEnum], number: int) -> str:
    """The name of a number from a request or a record, which may be unknown."""
    try:
        return kind(number).name
    except ValueError:
        return "UNKNOWN"
