"""Settings of a node's roles, its identity and the metadata quorum."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from penstock.settings.definition import REQUIRED, Type, at_least, between, distinct, setting
from penstock.settings.listeners import QuorumVoter, parse_host_port, parse_voters


@dataclass(frozen=True, kw_only=True)
class QuorumSettings:
    process_roles: tuple[str, ...] = setting(
        Type.LIST,
        REQUIRED,
        distinct("broker", "controller", empty=False),
        "The roles of this node: broker, controller, or both.",
    )
    node_id: int = setting(Type.INT, REQUIRED, at_least(0), "The id of this node, unique in the cluster.")
    broker_rack: str | None = setting(
        Type.STRING, None, None, "The rack of this node. Replicas of a partition are spread over racks."
    )
    controller_quorum_voters: tuple[str, ...] = setting(
        Type.LIST, (), distinct(), "The static voters of the metadata quorum, as ID@HOST:PORT,..."
    )
    controller_quorum_bootstrap_servers: tuple[str, ...] = setting(
        Type.LIST, (), distinct(), "The addresses of the metadata quorum, as HOST:PORT,..."
    )
    controller_quorum_election_timeout_ms: int = setting(
        Type.INT, 1000, at_least(0), "How long a candidate waits for votes before it retries."
    )
    controller_quorum_fetch_timeout_ms: int = setting(
        Type.INT, 2000, at_least(0), "How long a voter goes without contact to the leader before it starts an election."
    )
    controller_quorum_election_backoff_max_ms: int = setting(
        Type.INT, 1000, at_least(0), "The maximum random delay before another election."
    )
    controller_quorum_append_linger_ms: int = setting(
        Type.INT, 25, at_least(0), "How long the leader may hold back records to write them together."
    )
    controller_quorum_request_timeout_ms: int = setting(
        Type.INT, 2000, at_least(0), "How long a node of the quorum waits for a response."
    )
    controller_quorum_retry_backoff_ms: int = setting(
        Type.INT, 20, at_least(0), "How long to wait before a failed request to the quorum is retried."
    )
    controller_quorum_auto_join_enable: bool = setting(
        Type.BOOLEAN, False, None, "Whether a new controller adds itself to the voters."
    )
    controller_quorum_fetch_snapshot_max_bytes: int = setting(
        Type.INT, 1_048_576, at_least(1), "The maximum size of a FetchSnapshot response."
    )
    controller_quorum_fetch_max_bytes: int = setting(
        Type.INT, 1_048_576, at_least(1), "The maximum size of a fetch of the metadata log."
    )
    metadata_log_dir: str = setting(
        Type.STRING, "", None, "The directory of the metadata log; default: the first log directory."
    )
    metadata_log_max_record_bytes_between_snapshots: int = setting(
        Type.LONG, 20_971_520, at_least(1), "A snapshot of the metadata is taken after this many bytes of records."
    )
    metadata_log_max_snapshot_interval_ms: int = setting(
        Type.LONG,
        3_600_000,
        at_least(0),
        "A snapshot of the metadata is taken after this time, if anything changed; 0 for never.",
    )
    metadata_log_segment_bytes: int = setting(
        Type.INT, 1 << 30, at_least(8 << 20), "The size at which a segment of the metadata log is closed."
    )
    internal_metadata_log_segment_bytes: int = setting(
        Type.INT,
        0,
        between(1, 2**31 - 1),
        "metadata.log.segment.bytes without its lower bound, for tests.",
        internal=True,
    )
    metadata_log_segment_ms: int = setting(
        Type.LONG, 604_800_000, at_least(1), "The age at which a segment of the metadata log is closed."
    )
    metadata_max_retention_bytes: int = setting(
        Type.LONG,
        104_857_600,
        None,
        "The metadata log and its snapshots are trimmed to about this size; negative for no limit.",
    )
    metadata_max_retention_ms: int = setting(
        Type.LONG,
        604_800_000,
        None,
        "Metadata log segments and snapshots older than this are deleted; negative for never.",
    )
    metadata_max_idle_interval_ms: int = setting(
        Type.INT,
        500,
        at_least(0),
        "How often an idle leader of a quorum of several voters appends a no-op record; 0 for never.",
    )
    broker_heartbeat_interval_ms: int = setting(
        Type.INT, 2000, at_least(1), "How often a broker sends a heartbeat to the controller."
    )
    broker_session_timeout_ms: int = setting(
        Type.INT, 9000, at_least(1), "A broker is fenced if it sends no heartbeat for this long."
    )
    penstock_broker_refused_ms: int = setting(
        Type.INT,
        3000,
        at_least(1),
        "The controller considers a broker on another machine dead before its session ends, if the broker has lost its "
        "connection to the controller and its listener refuses connections for this long.",
    )
    penstock_local_death_detection: bool = setting(
        Type.BOOLEAN,
        True,
        None,
        "Whether nodes on the same machine are considered dead as soon as their processes end. If false, they are "
        "treated like nodes on other machines.",
    )
    penstock_cluster_id: str = setting(
        Type.STRING,
        "",
        None,
        "The cluster id of this node, for its first start. Without it, the first controller generates an id, and other "
        "nodes ask the quorum.",
    )
    initial_broker_registration_timeout_ms: int = setting(
        Type.INT, 60_000, at_least(1), "How long a broker tries to register at start before it gives up."
    )
    controlled_shutdown_enable: bool = setting(
        Type.BOOLEAN, True, None, "Whether a broker hands over its leaderships before it shuts down."
    )
    server_max_startup_time_ms: int = setting(
        Type.LONG, 2**63 - 1, at_least(0), "How long the start may take before the node gives up."
    )

    @property
    def is_broker(self) -> bool:
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.process_roles

    @cached_property
    def quorum_voters(self) -> tuple[QuorumVoter, ...]:
        return parse_voters(self.controller_quorum_voters)

    @cached_property
    def quorum_bootstrap_servers(self) -> tuple[tuple[str, int], ...]:
        name = "controller.quorum.bootstrap.servers"
        return tuple(parse_host_port(name, entry) for entry in self.controller_quorum_bootstrap_servers)

    @property
    def metadata_segment_bytes(self) -> int:
        return self.internal_metadata_log_segment_bytes or self.metadata_log_segment_bytes
