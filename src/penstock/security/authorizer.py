"""Authorization: whether a principal may perform an operation on a resource. Every request is checked.

Operations and resource types are Kafka's, numbered as in its ACL requests. `AllowAll` is the authorizer of a cluster
without one (`authorizer.class.name` is not set); `AclAuthorizer` decides by ACLs.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from penstock.security.principal import Principal


class Operation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceKind(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Resource(NamedTuple):
    kind: ResourceKind
    name: str


CLUSTER: Final = Resource(ResourceKind.CLUSTER, "kafka-cluster")

TOPIC_OPERATIONS: Final = frozenset(
    {
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    }
)
CLUSTER_OPERATIONS: Final = frozenset(
    {
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    }
)
GROUP_OPERATIONS: Final = frozenset(
    {
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    }
)


def topic_resource(name: str) -> Resource:
    return Resource(ResourceKind.TOPIC, name)


def group_resource(name: str) -> Resource:
    return Resource(ResourceKind.GROUP, name)


def transactional_id_resource(name: str) -> Resource:
    return Resource(ResourceKind.TRANSACTIONAL_ID, name)


class Authorizer(Protocol):
    # Changes whenever an earlier decision may no longer hold. Code that keeps decisions compares it.
    version: int

    def authorize(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool: ...

    def authorize_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind) -> bool:
        """Whether the principal may do this to any resource of the kind."""
        ...

    def refused(
        self, principal: Principal, host: str, operation: Operation, resource: Resource, api_key: int, /
    ) -> None:
        """A request was refused by a decision of this authorizer: report it."""
        ...


class AllowAll:
    version = 0

    def authorize(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        return True

    def authorize_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind) -> bool:
        return True

    def refused(
        self, principal: Principal, host: str, operation: Operation, resource: Resource, api_key: int, /
    ) -> None:
        raise AssertionError("nothing is refused")


def authorized_operations(
    authorizer: Authorizer, principal: Principal, host: str, resource: Resource, operations: frozenset[Operation]
) -> int:
    """Return the bit field of Metadata and Describe responses: bit n is set if operation n is allowed."""
    return sum(1 << each for each in operations if authorizer.authorize(principal, host, each, resource))
