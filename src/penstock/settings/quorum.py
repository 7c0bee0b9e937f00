"""Settings of a node's roles, its identity and the metadata quorum."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from penstock.settings.definition import REQUIRED, at_least, between, boolean, distinct, integer, long, string, strings
from penstock.settings.listeners import QuorumVoter, parse_host_port, parse_voters


@dataclass(frozen=True, kw_only=True)
class QuorumSettings:
    process_roles: tuple[str, ...] = strings(
        REQUIRED, "The roles of this node: broker, controller, or both.", distinct("broker", "controller", empty=False)
    )
    node_id: int = integer(REQUIRED, "The id of this node, unique in the cluster.", at_least(0))
    broker_rack: str | None = string(
        None, "The rack of this node. Replicas of a partition are spread over racks, then hosts."
    )
    controller_quorum_voters: tuple[str, ...] = strings(
        (), "The static voters of the metadata quorum, as ID@HOST:PORT,...", distinct()
    )
    controller_quorum_bootstrap_servers: tuple[str, ...] = strings(
        (), "The addresses of the metadata quorum, as HOST:PORT,...", distinct()
    )
    controller_quorum_election_timeout_ms: int = integer(
        1000, "How long a candidate waits for votes before it retries.", at_least(0)
    )
    controller_quorum_fetch_timeout_ms: int = integer(
        2000, "How long a voter goes without contact to the leader before it starts an election.", at_least(0)
    )
    controller_quorum_election_backoff_max_ms: int = integer(
        1000, "The maximum random delay before another election.", at_least(0)
    )
    controller_quorum_append_linger_ms: int = integer(
        25, "How long the leader may hold back records to write them together.", at_least(0)
    )
    controller_quorum_request_timeout_ms: int = integer(
        2000, "How long a node of the quorum waits for a response.", at_least(0)
    )
    controller_quorum_retry_backoff_ms: int = integer(
        20, "How long to wait before a failed request to the quorum is retried.", at_least(0)
    )
    controller_quorum_auto_join_enable: bool = boolean(False, "Whether a new controller adds itself to the voters.")
    controller_quorum_fetch_snapshot_max_bytes: int = integer(
        1_048_576, "The maximum size of a FetchSnapshot response.", at_least(1)
    )
    controller_quorum_fetch_max_bytes: int = integer(
        1_048_576, "The maximum size of a fetch of the metadata log.", at_least(1)
    )
    metadata_log_dir: str = string("", "The directory of the metadata log; default: the first log directory.")
    metadata_log_max_record_bytes_between_snapshots: int = long(
        20_971_520, "A snapshot of the metadata is taken after this many bytes of records.", at_least(1)
    )
    metadata_log_max_snapshot_interval_ms: int = long(
        3_600_000, "A snapshot of the metadata is taken after this time, if anything changed; 0 for never.", at_least(0)
    )
    metadata_log_segment_bytes: int = integer(
        1 << 30, "The size at which a segment of the metadata log is closed.", at_least(8 << 20)
    )
    internal_metadata_log_segment_bytes: int = integer(
        0, "metadata.log.segment.bytes without its lower bound, for tests.", between(1, 2**31 - 1), internal=True
    )
    metadata_log_segment_ms: int = long(
        604_800_000, "The age at which a segment of the metadata log is closed.", at_least(1)
    )
    metadata_max_retention_bytes: int = long(
        104_857_600, "The metadata log and its snapshots are trimmed to about this size; negative for no limit."
    )
    metadata_max_retention_ms: int = long(
        604_800_000, "Metadata log segments and snapshots older than this are deleted; negative for never."
    )
    metadata_max_idle_interval_ms: int = integer(
        500, "How often an idle leader of a quorum of several voters appends a no-op record; 0 for never.", at_least(0)
    )
    broker_heartbeat_interval_ms: int = integer(
        2000, "How often a broker sends a heartbeat to the controller.", at_least(1)
    )
    broker_session_timeout_ms: int = integer(
        9000, "A broker is fenced if it sends no heartbeat for this long.", at_least(1)
    )
    penstock_broker_refused_ms: int = integer(
        3000,
        "The controller considers a broker on another machine dead before its session ends, if the broker has lost its "
        "connection to the controller and its listener refuses connections for this long.",
        at_least(1),
    )
    penstock_local_death_detection: bool = boolean(
        True,
        "Whether nodes on the same machine are considered dead as soon as their processes end. If false, they are "
        "treated like nodes on other machines.",
    )
    penstock_cluster_id: str = string(
        "",
        "The cluster id of this node, for its first start. Without it, the first controller generates an id, and other "
        "nodes ask the quorum.",
    )
    initial_broker_registration_timeout_ms: int = integer(
        60_000, "How long a broker tries to register at start before it gives up.", at_least(1)
    )
    controlled_shutdown_enable: bool = boolean(
        True, "Whether a broker hands over its leaderships before it shuts down."
    )
    server_max_startup_time_ms: int = long(
        2**63 - 1, "How long the start may take before the node gives up.", at_least(0)
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
