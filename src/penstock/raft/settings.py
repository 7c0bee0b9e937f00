"""The settings of the quorum, in the form that the state machine needs."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.settings.quorum import QuorumSettings


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """The defaults are Kafka's."""

    # controller.quorum.election.timeout.ms: an election ends after a random time between this and twice this.
    election_timeout_ms: int = 1000
    # controller.quorum.fetch.timeout.ms: without a successful fetch for this long, a voter starts an election; without
    # fetches of a majority for one and a half times as long, a leader resigns.
    fetch_timeout_ms: int = 2000
    # controller.quorum.election.backoff.max.ms: how long the least caught up voter waits when a leader resigns.
    election_backoff_max_ms: int = 1000
    # controller.quorum.request.timeout.ms
    request_timeout_ms: int = 2000
    # controller.quorum.retry.backoff.ms
    retry_backoff_ms: int = 20
    # controller.quorum.fetch.max.bytes
    fetch_max_bytes: int = 1024 * 1024
    # controller.quorum.fetch.snapshot.max.bytes
    fetch_snapshot_max_bytes: int = 1024 * 1024
    # controller.quorum.auto.join.enable
    auto_join: bool = False
    # How long a leader holds a fetch that has nothing to return. Kafka uses the same value and has no setting for it.
    fetch_max_wait_ms: int = 500
    # When the leader's process is known to be dead, followers do not wait for the fetch timeout. They wait a random
    # time up to this before they stand for election, so that one of them is first.
    death_grace_ms: int = 150
    # The pause after a node did not answer a fetch in time. Meanwhile this node repeatedly asks the others who leads:
    # they may be about to elect another leader, and a fetch from a silent node costs another timeout.
    silence_backoff_ms: int = 1000
    # The maximum number of held fetches; further ones are answered at once.
    parked_fetches_max: int = 10_000

    @classmethod
    def of(cls, node: QuorumSettings) -> RaftSettings:
        return cls(
            election_timeout_ms=node.controller_quorum_election_timeout_ms,
            fetch_timeout_ms=node.controller_quorum_fetch_timeout_ms,
            election_backoff_max_ms=node.controller_quorum_election_backoff_max_ms,
            request_timeout_ms=node.controller_quorum_request_timeout_ms,
            retry_backoff_ms=node.controller_quorum_retry_backoff_ms,
            fetch_max_bytes=node.controller_quorum_fetch_max_bytes,
            fetch_snapshot_max_bytes=node.controller_quorum_fetch_snapshot_max_bytes,
            auto_join=node.controller_quorum_auto_join_enable,
        )
