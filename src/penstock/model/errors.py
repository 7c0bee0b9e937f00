"""Kafka's error codes, and the one exception that carries them.

Code that refuses a request, at any depth, raises KafkaError. The API handler at the top writes its code into the
answer, and its message if the response has a field for it. On a retriable error Kafka's clients repeat the request,
usually after refreshing their metadata, without notifying the application.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

_RETRIABLE = True


class ErrorCode(IntEnum):
    retriable: bool
    text: str

    def __new__(cls, code: int, text: str = "", retriable: bool = False) -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.text = text
        member.retriable = retriable
        return member

    UNKNOWN_SERVER_ERROR = -1, "The server failed in a way it did not expect."
    NONE = 0, ""
    OFFSET_OUT_OF_RANGE = 1, "The offset is outside the log."
    CORRUPT_MESSAGE = 2, "The record batch is damaged or inconsistent.", _RETRIABLE
    UNKNOWN_TOPIC_OR_PARTITION = 3, "No such topic or partition here.", _RETRIABLE
    INVALID_FETCH_SIZE = 4, "The fetch size is not valid."
    LEADER_NOT_AVAILABLE = 5, "The partition has no leader at the moment.", _RETRIABLE
    NOT_LEADER_OR_FOLLOWER = 6, "This broker does not lead the partition, or does not hold it at all.", _RETRIABLE
    REQUEST_TIMED_OUT = 7, "The request could not be completed in time.", _RETRIABLE
    BROKER_NOT_AVAILABLE = 8, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, "The replica is not available.", _RETRIABLE
    MESSAGE_TOO_LARGE = 10, "The record batch is larger than max.message.bytes allows."
    STALE_CONTROLLER_EPOCH = 11, "The controller has changed since."
    OFFSET_METADATA_TOO_LARGE = 12, "The metadata committed with the offset is too long."
    NETWORK_EXCEPTION = 13, "The connection ended before a response came.", _RETRIABLE
    COORDINATOR_LOAD_IN_PROGRESS = 14, "The coordinator is still loading its state.", _RETRIABLE
    COORDINATOR_NOT_AVAILABLE = 15, "There is no coordinator at the moment.", _RETRIABLE
    NOT_COORDINATOR = 16, "Another broker is the coordinator.", _RETRIABLE
    INVALID_TOPIC_EXCEPTION = 17, "The topic name is not valid, or the topic may not be used this way."
    RECORD_LIST_TOO_LARGE = 18, "The record batch is larger than a segment."
    NOT_ENOUGH_REPLICAS = 19, "Fewer replicas are in sync than min.insync.replicas; nothing was written.", _RETRIABLE
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, "Written, but to fewer replicas than min.insync.replicas.", _RETRIABLE
    INVALID_REQUIRED_ACKS = 21, "acks must be 0, 1 or -1."
    ILLEGAL_GENERATION = 22, "This is not the group's current generation."
    INCONSISTENT_GROUP_PROTOCOL = 23, "The member shares no protocol with the rest of its group, or names none."
    INVALID_GROUP_ID = 24, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, "The group has no such member."
    INVALID_SESSION_TIMEOUT = 26, "The session timeout is outside what the broker allows."
    REBALANCE_IN_PROGRESS = 27, "The group is rebalancing; join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, "The offset commit is too large."
    TOPIC_AUTHORIZATION_FAILED = 29, "Topic authorization failed."
    GROUP_AUTHORIZATION_FAILED = 30, "Group authorization failed."
    CLUSTER_AUTHORIZATION_FAILED = 31, "Cluster authorization failed."
    INVALID_TIMESTAMP = 32, "A timestamp is further off than the topic allows."
    UNSUPPORTED_SASL_MECHANISM = 33, "The SASL mechanism is not supported."
    ILLEGAL_SASL_STATE = 34, "The request does not fit the state of the SASL exchange."
    UNSUPPORTED_VERSION = 35, "The version of the request is not supported."
    TOPIC_ALREADY_EXISTS = 36, "A topic of this name exists already."
    INVALID_PARTITIONS = 37, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = 38, "The replication factor is below 1 or above the number of brokers available."
    INVALID_REPLICA_ASSIGNMENT = 39, "The replica assignment is not valid."
    INVALID_CONFIG = 40, "The configuration is not valid."
    NOT_CONTROLLER = 41, "Another node is the active controller.", _RETRIABLE
    INVALID_REQUEST = 42, "The request contradicts itself or asks for what cannot be."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "The message format of the log does not support this."
    POLICY_VIOLATION = 44, "A policy of this cluster forbids the request."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "The producer's sequence number leaves a gap or goes back."
    DUPLICATE_SEQUENCE_NUMBER = 46, "A batch of this sequence number was written long ago."
    INVALID_PRODUCER_EPOCH = 47, "The producer's epoch is older than the one known."
    INVALID_TXN_STATE = 48, "The transaction is not in a state that allows this."
    INVALID_PRODUCER_ID_MAPPING = 49, "The transactional id belongs to another producer id."
    INVALID_TRANSACTION_TIMEOUT = 50, "The transaction timeout is not positive or above transaction.max.timeout.ms."
    CONCURRENT_TRANSACTIONS = 51, "The previous step of this transaction is not finished yet.", _RETRIABLE
    TRANSACTION_COORDINATOR_FENCED = 52, "A newer transaction coordinator has taken over."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "Transactional Id authorization failed."
    SECURITY_DISABLED = 54, "No authorizer is configured."
    OPERATION_NOT_ATTEMPTED = 55, "Not tried, because another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, "The disk failed.", _RETRIABLE
    LOG_DIR_NOT_FOUND = 57, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, "SASL authentication failed."
    UNKNOWN_PRODUCER_ID = 59, "Nothing is known of this producer id any more."
    REASSIGNMENT_IN_PROGRESS = 60, "The partition is being reassigned."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "Delegation tokens are not enabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, "No such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "The principal neither owns nor may renew the delegation token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "Delegation tokens cannot be requested over this connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "Delegation Token authorization failed."
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, "The principal type is not supported."
    NON_EMPTY_GROUP = 68, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, "No such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, "No such fetch session.", _RETRIABLE
    INVALID_FETCH_SESSION_EPOCH = 71, "The fetch session is at another epoch.", _RETRIABLE
    LISTENER_NOT_FOUND = 72, "The leader has no listener of the name this request came in on.", _RETRIABLE
    TOPIC_DELETION_DISABLED = 73, "Deleting topics is disabled."
    FENCED_LEADER_EPOCH = 74, "The request's leader epoch is older than the partition's.", _RETRIABLE
    UNKNOWN_LEADER_EPOCH = 75, "The request's leader epoch is newer than the partition's.", _RETRIABLE
    UNSUPPORTED_COMPRESSION_TYPE = 76, "The client's version cannot read the compression of this partition."
    STALE_BROKER_EPOCH = 77, "The broker has registered again since."
    OFFSET_NOT_AVAILABLE = 78, "The new leader does not know its high watermark for certain yet.", _RETRIABLE
    MEMBER_ID_REQUIRED = 79, "Join again with the member id given here."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The preferred leader is not available.", _RETRIABLE
    GROUP_MAX_SIZE_REACHED = 81, "The group is full."
    FENCED_INSTANCE_ID = 82, "Another member has taken over this group.instance.id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No replica is eligible to lead.", _RETRIABLE
    ELECTION_NOT_NEEDED = 84, "The leader is already the one that an election would choose.", _RETRIABLE
    NO_REASSIGNMENT_IN_PROGRESS = 85, "The partition is not being reassigned."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "The group is subscribed to the topic."
    INVALID_RECORD = 87, "A record breaks the rules of its topic or of its batch."
    UNSTABLE_OFFSET_COMMIT = 88, "Offsets are pending in an open transaction.", _RETRIABLE
    THROTTLING_QUOTA_EXCEEDED = 89, "A quota is exceeded; try later.", _RETRIABLE
    PRODUCER_FENCED = 90, "A newer producer uses this transactional id."
    RESOURCE_NOT_FOUND = 91, "No such resource."
    DUPLICATE_RESOURCE = 92, "The request names a resource twice."
    UNACCEPTABLE_CREDENTIAL = 93, "The credential is not acceptable."
    INCONSISTENT_VOTER_SET = 94, "The sender or the receiver is not among the voters."
    INVALID_UPDATE_VERSION = 95, "The version to update to is not valid."
    FEATURE_UPDATE_FAILED = 96, "The features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "The principal of a forwarded request is unreadable."
    SNAPSHOT_NOT_FOUND = 98, "No such snapshot."
    POSITION_OUT_OF_RANGE = 99, "The position is outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, "No topic of this id here.", _RETRIABLE
    DUPLICATE_BROKER_REGISTRATION = 101, "A live broker has this id already."
    BROKER_ID_NOT_REGISTERED = 102, "No broker of this id is registered."
    INCONSISTENT_TOPIC_ID = 103, "The topic of this name has another id.", _RETRIABLE
    INCONSISTENT_CLUSTER_ID = 104, "This node belongs to another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, "No such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "The fetch session mixes topic names and ids.", _RETRIABLE
    INELIGIBLE_REPLICA = 107, "The new ISR contains a replica that is not eligible for it."
    NEW_LEADER_ELECTED = 108, "The partition was changed, and has another leader now."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "The offset is in tiered storage only."
    FENCED_MEMBER_EPOCH = 110, "The member was fenced: give up all partitions and join again."
    UNRELEASED_INSTANCE_ID = 111, "Another member still holds this group.instance.id."
    UNSUPPORTED_ASSIGNOR = 112, "The group has no such assignor."
    STALE_MEMBER_EPOCH = 113, "The member's epoch is stale; a heartbeat brings the new one."
    MISMATCHED_ENDPOINT_TYPE = 114, "The request came to the wrong kind of endpoint."
    UNSUPPORTED_ENDPOINT_TYPE = 115, "This kind of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, "No controller of this id is known."
    UNKNOWN_SUBSCRIPTION_ID = 117, "The telemetry subscription is unknown or out of date."
    TELEMETRY_TOO_LARGE = 118, "The telemetry is larger than the broker accepts."
    INVALID_REGISTRATION = 119, "The controller does not accept this registration."
    TRANSACTION_ABORTABLE = 120, "The transaction failed; abort it, and the producer can go on."
    INVALID_RECORD_STATE = 121, "The record is not in a state to be acknowledged."
    SHARE_SESSION_NOT_FOUND = 122, "No such share session.", _RETRIABLE
    INVALID_SHARE_SESSION_EPOCH = 123, "The share session is at another epoch.", _RETRIABLE
    FENCED_STATE_EPOCH = 124, "The state is at another epoch."
    INVALID_VOTER_KEY = 125, "The voter key is not this replica's."
    DUPLICATE_VOTER = 126, "The voter is in the voter set already."
    VOTER_NOT_FOUND = 127, "The voter is not in the voter set."
    INVALID_REGULAR_EXPRESSION = 128, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, "The client's metadata is too old; it should start again from its bootstrap servers."
    STREAMS_INVALID_TOPOLOGY = 130, "The topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "The topology epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, "The topology epoch is out of date."
    SHARE_SESSION_LIMIT_REACHED = 133, "There are as many share sessions as the broker allows.", _RETRIABLE
    GROUP_DELETION_FAILED = 134, "The group could not be deleted."
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135, "The topology description could not be updated."
    CONTROLLER_ID_NOT_REGISTERED = 136, "No controller of this id is registered."


# Characters: a message may quote a name of the client, and a response has room for 32,767 bytes.
MESSAGE_MAX: Final = 8000


class KafkaError(Exception):
    """A refused request, with the error code and message for the client."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        self.code = code
        self.message = (message or code.text)[:MESSAGE_MAX]
        super().__init__(code, self.message)

    @property
    def detail(self) -> str | None:
        """The message where it says more than the code does: some responses of Kafka have no message otherwise."""
        return None if self.message == self.code.text else self.message

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"
