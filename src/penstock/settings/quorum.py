"""Roles, identity and the metadata quorum."""

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
        "What this node is: a broker, a controller, or both.",
    )
    node_id: int = setting(Type.INT, REQUIRED, at_least(0), "The id of this node, unique in the cluster.")
    broker_rack: str | None = setting(
        Type.STRING, None, None, "Where this node stands; replicas of a partition are spread over racks."
    )
    controller_quorum_voters: tuple[str, ...] = setting(
        Type.LIST, (), distinct(), "The fixed voters of the metadata quorum, as ID@HOST:PORT,..."
    )
    controller_quorum_bootstrap_servers: tuple[str, ...] = setting(
        Type.LIST, (), distinct(), "Where to find the metadata quorum, as HOST:PORT,..."
    )
    controller_quorum_election_timeout_ms: int = setting(
        Type.INT, 1000, at_least(0), "How long a candidate waits for votes before it tries again."
    )
    controller_quorum_fetch_timeout_ms: int = setting(
        Type.INT, 2000, at_least(0), "How long a voter goes without the leader before it calls an election."
    )
    controller_quorum_election_backoff_max_ms: int = setting(
        Type.INT, 1000, at_least(0), "The longest random wait before another election."
    )
    controller_quorum_append_linger_ms: int = setting(
        Type.INT, 25, at_least(0), "How long the leader may hold records back to write them together."
    )
    controller_quorum_request_timeout_ms: int = setting(
        Type.INT, 2000, at_least(0), "How long a node of the quorum waits for an answer."
    )
    controller_quorum_retry_backoff_ms: int = setting(
        Type.INT, 20, at_least(0), "How long to wait before a failed request to the quorum is repeated."
    )
    controller_quorum_auto_join_enable: bool = setting(
        Type.BOOLEAN, False, None, "Whether a new controller adds itself to the voters."
    )
    controller_quorum_fetch_snapshot_max_bytes: int = setting(
        Type.INT, 1_048_576, at_least(1), "The most bytes one FetchSnapshot response carries."
    )
    controller_quorum_fetch_max_bytes: int = setting(
        Type.INT, 1_048_576, at_least(1), "The most bytes one fetch of the metadata log carries."
    )
    metadata_log_dir: str = setting(
        Type.STRING, "", None, "Where the metadata log is kept; the first of the log directories if left out."
    )
    metadata_log_max_record_bytes_between_snapshots: int = setting(
        Type.LONG, 20_971_520, at_least(1), "A snapshot of the metadata is due after this many bytes of records."
    )
    metadata_log_max_snapshot_interval_ms: int = setting(
        Type.LONG,
        3_600_000,
        at_least(0),
        "A snapshot of the metadata is due after this long, if anything changed; 0 for never.",
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
        "Metadata log and snapshots are trimmed to about this size; negative for no limit.",
    )
    metadata_max_retention_ms: int = setting(
        Type.LONG, 604_800_000, None, "Metadata log and snapshots older than this are deleted; negative for never."
    )
    metadata_max_idle_interval_ms: int = setting(
        Type.INT, 500, at_least(0), "How often an idle leader of a larger quorum appends a no-op record; 0 for never."
    )
    broker_heartbeat_interval_ms: int = setting(
        Type.INT, 2000, at_least(1), "How often a broker tells the controller that it is alive."
    )
    broker_session_timeout_ms: int = setting(
        Type.INT, 9000, at_least(1), "A broker that was not heard of for this long is fenced."
    )
    penstock_broker_refused_ms: int = setting(
        Type.INT,
        3000,
        at_least(1),
        "A broker on another machine that has lost its connection to the controller, and whose listener refuses "
        "connections for this long, is taken for dead before its session ends.",
    )
    penstock_local_death_detection: bool = setting(
        Type.BOOLEAN,
        True,
        None,
        "Whether nodes of the same machine are taken for dead as soon as their processes are gone; otherwise they are "
        "treated like nodes of other machines.",
    )
    penstock_cluster_id: str = setting(
        Type.STRING,
        "",
        None,
        "The id of the cluster this node belongs to, for its first start; left out, the first controller makes one up, "
        "and others ask the quorum.",
    )
    initial_broker_registration_timeout_ms: int = setting(
        Type.INT, 60_000, at_least(1), "How long a starting broker tries to register before it gives up."
    )
    controlled_shutdown_enable: bool = setting(
        Type.BOOLEAN, True, None, "Whether a stopping broker first hands its leaderships over."
    )
    server_max_startup_time_ms: int = setting(
        Type.LONG, 2**63 - 1, at_least(0), "How long starting may take before the node gives up."
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
