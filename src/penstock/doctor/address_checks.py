"""Findings about addresses: whether they can be reached, lead to the right broker, and all to one cluster."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.doctor.findings import Finding, Limits, count
from penstock.doctor.observations import BrokerSeen, Failure, Observations, Reached

_WHY: dict[Failure, str] = {
    "name": "the name is not known here",
    "refused": "nothing listens there",
    "silent": "nothing answers: the machine is off or hangs, or a firewall drops what we send",
    "not-kafka": "something answers there that does not speak Kafka's protocol",
    "tls": "the TLS handshake fails",
    "login": "the broker refuses the login",
    "controller": "a controller listens there, and clients are served by brokers",
}
_TODO: dict[Failure, str] = {
    "name": "check the spelling, and DNS or /etc/hosts of this machine",
    "refused": "check the port, and that the broker runs: its server.log says on what it listens",
    "silent": "see whether the machine is up, and what is between here and there",
    "not-kafka": "check the port; if the listener is encrypted, connect with the settings it asks for",
    "tls": "check security.protocol and the ssl.* settings of --command-config or --profile, and the certificate there",
    "login": "check the sasl.* settings of --command-config or --profile",
    "controller": "use an address of a broker: of listeners, not of controller.quorum.bootstrap.servers",
}


def bootstrap(seen: Observations) -> Iterator[Finding]:
    for reached in seen.bootstrap:
        if reached.failure is not None:
            others = any(other.ok for other in seen.bootstrap)
            yield Finding(
                "bootstrap-unreachable",
                "warning" if others else "error",
                reached.address,
                f"the bootstrap address {reached.address} cannot be used",
                f"{_WHY[reached.failure]} ({reached.error})" if reached.error else _WHY[reached.failure],
                _TODO[reached.failure],
            )


def cluster_ids(seen: Observations, limits: Limits) -> Iterator[Finding]:
    ids = {reached.cluster_id: reached for reached in seen.bootstrap if reached.ok and reached.cluster_id}
    if len(ids) > 1:
        clusters_seen = ", ".join(f"{reached.address} is {cluster_id}" for cluster_id, reached in ids.items())
        yield Finding(
            "wrong-cluster",
            "error",
            ",".join(reached.address for reached in ids.values()),
            "the bootstrap addresses lead to different clusters",
            clusters_seen,
            "name brokers of one cluster only: which one a client gets is chance",
        )
    wanted = limits.cluster_id
    if wanted is not None and seen.cluster_id is not None and seen.cluster_id != wanted:
        yield Finding(
            "wrong-cluster",
            "error",
            seen.cluster_id,
            f"this is cluster {seen.cluster_id}, not {wanted}",
            "the address leads to another cluster, or the data directories were formatted anew",
            "check the address; if it is the right machine, see cluster.id in meta.properties of its log.dirs",
        )


def listeners(seen: Observations) -> Iterator[Finding]:
    came_from_afar = any(reached.ok and not reached.is_loopback for reached in seen.bootstrap)
    for broker in seen.brokers:
        reached = broker.reached
        if reached is None:
            continue
        who = f"broker {broker.broker_id}"
        if reached.host in ("0.0.0.0", "::", ""):
            yield Finding(
                "listener-misleading",
                "error",
                who,
                f"{who} tells clients to connect to {reached.address}, which is no address",
                "advertised.listeners holds the wildcard that listeners may have",
                f"set advertised.listeners of {who} to the name or address that clients reach it by",
            )
        elif reached.is_loopback and came_from_afar:
            yield Finding(
                "listener-misleading",
                "error",
                who,
                f"{who} tells clients to connect to {reached.address}, which is the client's own machine",
                "advertised.listeners (or listeners, where it is not set) names a loopback address, and we came over "
                "the network",
                f"set advertised.listeners of {who} to the name or address that clients reach it by",
            )
        elif reached.failure is not None:
            yield _unreachable(who, broker, reached, seen)
        elif reached.cluster_id is not None and reached.cluster_id != seen.cluster_id:
            yield Finding(
                "listener-misleading",
                "error",
                who,
                f"{who} tells clients to connect to {reached.address}, where another cluster answers "
                f"({reached.cluster_id})",
                "advertised.listeners names an address of another cluster, or a proxy or port forwarding leads astray",
                f"correct advertised.listeners of {who}, or what forwards the port",
            )
        elif broker.is_somebody_else:
            yield Finding(
                "listener-misleading",
                "error",
                who,
                f"{who} tells clients to connect to {reached.address}, where another broker of the cluster answers",
                "two brokers advertise one address, or a load balancer stands before several",
                f"give {who} an address of its own in advertised.listeners: clients must reach each broker by itself",
            )


def _unreachable(who: str, broker: BrokerSeen, reached: Reached, seen: Observations) -> Finding:
    assert reached.failure is not None
    leads = sum(partition.leader == broker.broker_id for partition in seen.partitions)
    return Finding(
        "listener-unreachable",
        "error",
        who,
        f"{who} tells clients to connect to {reached.address}, which cannot be reached from here",
        f"{_WHY[reached.failure]} ({reached.error}); it leads {count(leads, 'partition')} that clients here cannot use",
        f"if clients reach {who} at another address, correct its advertised.listeners; else {_TODO[reached.failure]}",
    )
