"""The table of all APIs: keys, messages, versions, and the listeners that serve them.

The messages of an API are named after its key: `ApiKey.LIST_OFFSETS` has `ListOffsetsRequest` and `ListOffsetsResponse`
in the module `messages.list_offsets`. Versions come from the messages. The table states two exceptions: `_STABLE` is
the newest version to serve if the message already declares a draft of the next; `_ADVERTISED_MIN` is the lowest version
to report in ApiVersions if that is not the lowest one served.

A row is made, and its messages are imported, when it is first asked for: a client uses a few of the ninety APIs, and
importing all of them takes longer than its request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from importlib import import_module
from typing import Final, NamedTuple

from penstock.protocol.declaration import Message


class ApiKey(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93
    UNREGISTER_CONTROLLER = 94


class ApiSpec(NamedTuple):
    key: ApiKey
    name: str
    request: type[Message]
    response: type[Message]
    min_version: int
    # The newest version to serve and to request.
    max_version: int
    # The newest version declared: above max_version only while Kafka calls it unstable.
    latest_version: int
    # The first version with compact lengths and tags; above latest_version if there is none.
    flexible_from: int
    # "broker", "controller", or both.
    listeners: frozenset[str]
    # The minimum version that ApiVersions reports instead of min_version.
    advertised_min_version: int


# Other APIs are served by brokers only.
_CONTROLLER_APIS = frozenset((
    ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH, ApiKey.ALTER_PARTITION, ApiKey.ENVELOPE,
    ApiKey.FETCH_SNAPSHOT, ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT, ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.CONTROLLER_REGISTRATION, ApiKey.ASSIGN_REPLICAS_TO_DIRS, ApiKey.UPDATE_RAFT_VOTER,
))  # fmt: skip
_COMMON_APIS = frozenset((
    ApiKey.FETCH, ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS, ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS,
    ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS,
    ApiKey.SASL_AUTHENTICATE, ApiKey.CREATE_PARTITIONS, ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN, ApiKey.ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.DESCRIBE_QUORUM, ApiKey.UPDATE_FEATURES, ApiKey.DESCRIBE_CLUSTER, ApiKey.UNREGISTER_BROKER,
    ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER, ApiKey.UNREGISTER_CONTROLLER,
))  # fmt: skip

_STABLE = {ApiKey.INIT_PRODUCER_ID: 5}
# librdkafka fails to compress for a broker that does not offer Produce 0 (KAFKA-18659), though it never sends it.
_ADVERTISED_MIN = {ApiKey.PRODUCE: 0}

# The first flexible version of an API that has none.
NEVER = 32767


def _listeners(key: ApiKey) -> frozenset[str]:
    if key in _COMMON_APIS:
        return frozenset({"broker", "controller"})
    return frozenset({"controller" if key in _CONTROLLER_APIS else "broker"})


def _spec(key: ApiKey) -> ApiSpec:
    name = key.name.title().replace("_", "")
    module = import_module(f"penstock.protocol.messages.{key.name.lower()}")
    request: type[Message] = getattr(module, f"{name}Request")
    schema = request.__schema__
    if schema.key != key or schema.versions is None:
        raise TypeError(f"{request.__name__} declares another API key or no versions")
    first, latest = schema.versions
    return ApiSpec(
        key=key,
        name=name,
        request=request,
        response=getattr(module, f"{name}Response"),
        min_version=first,
        max_version=_STABLE.get(key, latest),
        latest_version=latest,
        flexible_from=schema.flexible.first if schema.flexible.is_some else NEVER,
        listeners=_listeners(key),
        advertised_min_version=_ADVERTISED_MIN.get(key, first),
    )


class _Table(Mapping[int, ApiSpec]):
    def __init__(self) -> None:
        self._made: dict[int, ApiSpec] = {}

    def __getitem__(self, key: int) -> ApiSpec:
        spec = self._made.get(key)
        if spec is None:
            if key not in _KEYS:
                raise KeyError(key)
            spec = self._made[key] = _spec(ApiKey(key))
        return spec

    def __contains__(self, key: object) -> bool:
        return key in _KEYS

    def __iter__(self) -> Iterator[int]:
        return iter(ApiKey)

    def __len__(self) -> int:
        return len(ApiKey)


_KEYS: Final = frozenset(map(int, ApiKey))
API: Final[Mapping[int, ApiSpec]] = _Table()
