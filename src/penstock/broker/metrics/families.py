"""Declares every metric, once.

If Kafka has the same number, the name is the one that Prometheus' JMX exporter gives Kafka's MBean in its common
configuration (`kafka_server_brokertopicmetrics_bytesin_total`), and for groups that of kafka_exporter
(`kafka_consumergroup_lag`), so that dashboards and alerts for Kafka work. Metrics that only Penstock has begin with
`penstock_`, those that every process has with `process_`.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]


class Family(NamedTuple):
    name: str
    kind: Kind
    section: str
    labels: tuple[str, ...]
    help: str


FAMILIES: Final[dict[str, Family]] = {}


class Section(NamedTuple):
    """A section of the documentation, and the metrics declared in it."""

    title: str

    def counter(self, name: str, help_text: str, *labels: str) -> Family:
        assert name.endswith("_total")
        return self._declare("counter", name, help_text, labels)

    def gauge(self, name: str, help_text: str, *labels: str) -> Family:
        return self._declare("gauge", name, help_text, labels)

    def histogram(self, name: str, help_text: str, *labels: str) -> Family:
        return self._declare("histogram", name, help_text, labels)

    def _declare(self, kind: Kind, name: str, help_text: str, labels: tuple[str, ...]) -> Family:
        assert name not in FAMILIES
        family = FAMILIES[name] = Family(name, kind, self.title, labels, help_text)
        return family


TRAFFIC = Section("Topics: what goes in and out")
BYTES_IN = TRAFFIC.counter(
    "kafka_server_brokertopicmetrics_bytesin_total", "Bytes of batches appended by leaders.", "topic"
)
BYTES_OUT = TRAFFIC.counter(
    "kafka_server_brokertopicmetrics_bytesout_total", "Bytes of batches sent to consumers.", "topic"
)
MESSAGES_IN = TRAFFIC.counter(
    "kafka_server_brokertopicmetrics_messagesin_total",
    "Records appended by leaders, transaction markers and what coordinators write among them.",
    "topic",
)
MESSAGES_OUT = TRAFFIC.counter(
    "penstock_topic_messages_out_total",
    "Records sent to consumers, counted by offsets: in a compacted topic, those that are gone too.",
    "topic",
)
REPLICATION_BYTES_IN = TRAFFIC.counter(
    "kafka_server_brokertopicmetrics_replicationbytesin_total", "Bytes that this broker copied from leaders."
)
REPLICATION_BYTES_OUT = TRAFFIC.counter(
    "kafka_server_brokertopicmetrics_replicationbytesout_total", "Bytes that followers copied from this broker."
)

REQUESTS = Section("Requests")
LATENCY = REQUESTS.histogram(
    "kafka_network_requestmetrics_totaltime_seconds",
    "From the read that brought a request until its answer goes to the socket, waiting included. Fetches of consumers "
    "(FetchConsumer) wait for data on purpose.",
    "request",
)
PARKED = REQUESTS.gauge(
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "Requests that wait for their answer now: for replicas, for data, for the quorum.",
    "delayedOperation",
)
CONNECTIONS = REQUESTS.gauge(
    "kafka_server_socketservermetrics_connection_count", "Connections that are open.", "listener"
)
CONNECTIONS_OPENED = REQUESTS.counter(
    "kafka_server_socketservermetrics_connection_creation_total", "Connections that were accepted, on all listeners."
)
CONNECTIONS_REFUSED = REQUESTS.counter(
    "penstock_connections_refused_total",
    "Connections that were refused for max.connections or max.connections.per.ip, or because too many files were open.",
)
AUTHENTICATIONS = REQUESTS.counter(
    "penstock_authentications_total",
    "SASL authentications, by listener and outcome: succeeded or failed.",
    "listener",
    "outcome",
)
FETCH_SESSIONS = REQUESTS.gauge(
    "kafka_server_fetchsessioncache_numincrementalfetchsessions",
    "Incremental fetch sessions of consumers and followers.",
)

QUOTAS = Section("Quotas of clients")
QUOTA_LABELS = ("resource", "user", "clientId")
THROTTLE_TIME = QUOTAS.gauge(
    "kafka_server_quota_throttle_time",
    "How long a client was throttled, in milliseconds: the average of the requests that were throttled in the last "
    "eleven seconds. The resource is Produce, Fetch, Request or ControllerMutation (reported by the active "
    "controller). Clients that did nothing in that time are not listed.",
    *QUOTA_LABELS,
)
QUOTA_BYTE_RATE = QUOTAS.gauge(
    "kafka_server_quota_byte_rate",
    "Bytes a second that a client with a quota produces or fetches.",
    *QUOTA_LABELS,
)
QUOTA_REQUEST_TIME = QUOTAS.gauge(
    "kafka_server_quota_request_time",
    "The share of this broker's time that a client with a quota takes, in percent.",
    *QUOTA_LABELS,
)
QUOTA_TOKENS = QUOTAS.gauge(
    "kafka_server_quota_tokens",
    "Partitions that a client with a quota may create or delete at once; negative while it must wait.",
    *QUOTA_LABELS,
)
QUOTA_LIMIT = QUOTAS.gauge("penstock_quota_limit", "The quota that applies.", *QUOTA_LABELS)
THROTTLED_REQUESTS = QUOTAS.counter(
    "penstock_throttled_requests_total",
    "Requests whose client was throttled, and connections that were refused for the rate of their address "
    "(Connection).",
    "resource",
)
THROTTLED_SECONDS = QUOTAS.counter(
    "penstock_throttled_seconds_total", "How long clients were throttled, all in all.", "resource"
)
THROTTLED_CONNECTIONS = QUOTAS.gauge(
    "penstock_connections_throttled",
    "Connections that are not read from now, because their client has exceeded a quota.",
    "listener",
)

REPLICAS = Section("Partitions and replicas")
PARTITIONS = REPLICAS.gauge(
    "kafka_server_replicamanager_partitioncount", "Partitions that this broker has a replica of."
)
LEADERS = REPLICAS.gauge("kafka_server_replicamanager_leadercount", "Partitions that this broker leads.")
UNDER_REPLICATED = REPLICAS.gauge(
    "kafka_server_replicamanager_underreplicatedpartitions",
    "Partitions led here with fewer replicas in sync than they should have. Should be 0.",
)
UNDER_MIN_ISR = REPLICAS.gauge(
    "kafka_server_replicamanager_underminisrpartitioncount",
    "Partitions led here with fewer replicas in sync than min.insync.replicas: acks=all is refused. Should be 0.",
)
REASSIGNING = REPLICAS.gauge(
    "kafka_server_replicamanager_reassigningpartitions", "Partitions led here that are being moved to other brokers."
)
ISR_SHRINKS = REPLICAS.counter(
    "kafka_server_replicamanager_isrshrinks_total", "Times that a partition led here lost a replica in sync."
)
ISR_EXPANDS = REPLICAS.counter(
    "kafka_server_replicamanager_isrexpands_total", "Times that a partition led here got a replica in sync."
)
FOLLOWER_LAG = REPLICAS.gauge(
    "penstock_follower_lag_max", "The most records that a follower lacks in any partition led here.", "follower"
)
LOG_SIZE = REPLICAS.gauge("kafka_log_log_size", "Bytes of the replica's segments.", "topic", "partition")
LOG_SEGMENTS = REPLICAS.gauge("kafka_log_log_numlogsegments", "Segments of the replica.", "topic", "partition")
LOG_START = REPLICAS.gauge("kafka_log_log_logstartoffset", "The first offset the replica has.", "topic", "partition")
LOG_END = REPLICAS.gauge("kafka_log_log_logendoffset", "The next offset the replica will have.", "topic", "partition")
DIRECTORY_TOTAL = REPLICAS.gauge("penstock_log_directory_total_bytes", "The size of the volume.", "directory")
DIRECTORY_FREE = REPLICAS.gauge("penstock_log_directory_free_bytes", "What is left of it for this node.", "directory")
OFFLINE_DIRECTORIES = REPLICAS.gauge(
    "kafka_log_logmanager_offlinelogdirectorycount", "Log directories of this broker that have failed. Should be 0."
)
DIRECTORY_OFFLINE = REPLICAS.gauge(
    "kafka_log_logmanager_logdirectoryoffline",
    "1 for a log directory that has failed, 0 for one that works.",
    "logdirectory",
)

GROUPS = Section("Consumer groups and transactions")
GROUP_LAG = GROUPS.gauge(
    "kafka_consumergroup_lag",
    "Records between what the group has committed and the end of the partition; reported by the group's coordinator, "
    "which asks the partitions' leaders.",
    "consumergroup",
    "topic",
    "partition",
)
GROUP_OFFSET = GROUPS.gauge(
    "kafka_consumergroup_current_offset", "What the group has committed.", "consumergroup", "topic", "partition"
)
GROUP_MEMBERS = GROUPS.gauge("kafka_consumergroup_members", "Members of the group.", "consumergroup")
GROUP_GENERATION = GROUPS.gauge(
    "penstock_consumergroup_generation",
    "The group's generation or epoch, which grows with every rebalance: changes(...[10m]) shows a group that cannot "
    "settle.",
    "consumergroup",
)
GROUP_STATES = GROUPS.gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroups", "Groups that this broker coordinates, by state.", "state"
)
SHARE_LAG = GROUPS.gauge(
    "penstock_sharegroup_lag",
    "Records of the partition that the share group has not finished: neither accepted nor discarded. Reported by the "
    "group's coordinator, which asks the share coordinators and the partitions' leaders.",
    "sharegroup",
    "topic",
    "partition",
)
SHARE_START = GROUPS.gauge(
    "penstock_sharegroup_start_offset",
    "The share group has finished all records before this offset.",
    "sharegroup",
    "topic",
    "partition",
)
SHARE_ACQUIRED = GROUPS.gauge(
    "penstock_sharegroup_acquired_records",
    "Records that members of the share group have and have not acknowledged; reported by the partition's leader.",
    "sharegroup",
    "topic",
    "partition",
)
SHARE_LAST_ATTEMPTS = GROUPS.gauge(
    "penstock_sharegroup_last_attempt_records",
    "Records on their last delivery, under way or next: if it fails, they are discarded. Reported by the partition's "
    "leader.",
    "sharegroup",
    "topic",
    "partition",
)
SHARE_DELIVERIES = GROUPS.counter(
    "penstock_sharegroup_deliveries_total",
    "Deliveries to the share group that ended, by how: accepted, released, rejected, lock_timeout, and delivery_limit "
    "for those that failed and were the last. Reported by the partitions' leaders.",
    "sharegroup",
    "topic",
    "outcome",
)
TRANSACTIONS = GROUPS.gauge(
    "penstock_transactions",
    "Transactional ids that this broker coordinates, by the state of their transaction; open ones are Ongoing.",
    "state",
)
OLDEST_TRANSACTION = GROUPS.gauge(
    "penstock_transaction_oldest_open_seconds",
    "How long the oldest transaction coordinated here has been open; 0 if none is.",
)
COORDINATORS = GROUPS.gauge(
    "penstock_coordinator_partitions",
    "Partitions of __consumer_offsets (group), __transaction_state (transaction) and __share_group_state (share) that "
    "this broker looks after. Those that are loading cannot answer yet.",
    "coordinator",
    "state",
)

QUORUM = Section("Controllers and the metadata quorum")
ACTIVE_CONTROLLER = QUORUM.gauge(
    "kafka_controller_kafkacontroller_activecontrollercount",
    "1 on the active controller. The sum over all controllers should be 1.",
)
OFFLINE_PARTITIONS = QUORUM.gauge(
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "Partitions of the cluster without a leader, as this controller knows it. Should be 0.",
)
NOT_PREFERRED = QUORUM.gauge(
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
    "Partitions of the cluster that are led by another than their first replica.",
)
GLOBAL_TOPICS = QUORUM.gauge("kafka_controller_kafkacontroller_globaltopiccount", "Topics of the cluster.")
GLOBAL_PARTITIONS = QUORUM.gauge("kafka_controller_kafkacontroller_globalpartitioncount", "Partitions of the cluster.")
ACTIVE_BROKERS = QUORUM.gauge(
    "kafka_controller_kafkacontroller_activebrokercount", "Brokers that are registered and unfenced."
)
FENCED_BROKERS = QUORUM.gauge(
    "kafka_controller_kafkacontroller_fencedbrokercount", "Brokers that are registered, and gone or not ready."
)
RAFT_STATE = QUORUM.gauge(
    "kafka_server_raftmetrics_currentstate",
    "1 for the node's role in the metadata quorum: leader, follower, observer, candidate, prospective, unattached or "
    "resigned.",
    "state",
)
RAFT_LEADER = QUORUM.gauge(
    "kafka_server_raftmetrics_currentleader", "The node that leads the quorum; -1 if none is known."
)
RAFT_EPOCH = QUORUM.gauge("kafka_server_raftmetrics_currentepoch", "The quorum's epoch.")
RAFT_HIGH_WATERMARK = QUORUM.gauge(
    "kafka_server_raftmetrics_highwatermark", "The metadata log is committed below this offset."
)
RAFT_LOG_END = QUORUM.gauge("kafka_server_raftmetrics_logendoffset", "Where the node's metadata log ends.")
RAFT_LAG = QUORUM.gauge(
    "penstock_raft_replica_lag",
    "Records of the metadata log that another node lacks; reported by the quorum's leader.",
    "replica",
    "role",
)
METADATA_LAG = QUORUM.gauge(
    "kafka_server_broker_metadata_metrics_last_applied_record_lag",
    "Committed metadata records that this node has not applied yet.",
)

CLIENTS = Section("Metrics of clients")
CLIENT_INSTANCES = CLIENTS.gauge(
    "kafka_server_client_metrics_instance_count", "Clients that asked this broker which metrics to send (KIP-714)."
)
CLIENT_PUSHES = CLIENTS.counter("penstock_client_metrics_pushes_total", "Metrics received, counted by pushes.")
CLIENT_PUSHES_INVALID = CLIENTS.counter(
    "penstock_client_metrics_invalid_pushes_total", "Pushes that could not be read, or were too large uncompressed."
)
CLIENT_REQUESTS_THROTTLED = CLIENTS.counter(
    "kafka_server_client_metrics_throttle_total", "Requests for subscriptions, and pushes, that came too early."
)
CLIENT_SUBSCRIPTIONS_UNKNOWN = CLIENTS.counter(
    "kafka_server_client_metrics_unknown_subscription_request_total",
    "Pushes for a subscription that has changed. The client asks for the new one.",
)
CLIENT_SERIES_LEFT_OUT = CLIENTS.counter(
    "penstock_client_metrics_series_left_out_total",
    "Numbers from clients that were not kept for penstock.telemetry.max.series.",
)

PROCESS = Section("The process")
LOOP_LAG = PROCESS.histogram(
    "penstock_loop_lag_seconds",
    "How late the event loop was for what it was to do, looked at ten times a second. Everything waits for this.",
)
BUILD = PROCESS.gauge("penstock_build_info", "1; which version this is.", "version", "node_id", "roles")
CPU = PROCESS.counter("process_cpu_seconds_total", "User and system CPU time.")
RESIDENT = PROCESS.gauge("process_resident_memory_bytes", "Resident memory.")
VIRTUAL = PROCESS.gauge("process_virtual_memory_bytes", "Virtual memory.")
OPEN_FILES = PROCESS.gauge("process_open_fds", "Open file descriptors.")
MAX_FILES = PROCESS.gauge("process_max_fds", "How many there may be.")
START_TIME = PROCESS.gauge("process_start_time_seconds", "When the process started, as Unix time.")
CLOCK = PROCESS.gauge("penstock_clock_seconds", "The node's clock, as Unix time; compare it with your own.")
SCRAPES = PROCESS.counter("penstock_metrics_scrapes_total", "How often these numbers were asked for.")
AUDIT_DROPPED = PROCESS.counter(
    "penstock_audit_events_dropped_total",
    "Events that were not written to the topic of penstock.audit.topic, because too many were waiting.",
)
LEFT_OUT = PROCESS.gauge(
    "penstock_metrics_series_left_out",
    "Partitions of logs and groups that are not named here for penstock.metrics.max.series.",
)
