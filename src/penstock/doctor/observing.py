"""Observes a cluster over the wire, from the machine on which the doctor runs.

First it tries the addresses one by one and independently, because each may be the problem: those that were given, then
those that brokers report to clients. Everything else is queried through the addresses that answer; a query that fails
is recorded and skipped. Groups are observed for a short while, because a single moment does not show which group is
stuck, falls behind or keeps rebalancing: briefly if all are stable and have read nearly everything, longer if not.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from penstock.client.access import open_access
from penstock.client.errors import BadResponse, ClientError, NotAuthorized, TimedOut
from penstock.client.wire.admin import Admin, ResourceType
from penstock.client.wire.admin.group_members import WITH_OFFSETS
from penstock.client.wire.cluster import parse_bootstrap
from penstock.client.wire.connection import Connection
from penstock.client.wire.login import login_from, tls_from
from penstock.doctor.metrics_pages import Page, find_pages, read_page, read_pages
from penstock.doctor.observations import (
    REBALANCING,
    BrokerSeen,
    ClockSeen,
    DirectorySeen,
    Failure,
    GroupSample,
    GroupSeen,
    Observations,
    PartitionSeen,
    ProgressSeen,
    QuorumSeen,
    Reached,
    ShareGroupSeen,
    TransactionSeen,
)
from penstock.doctor.share_observing import ShareLook, look_at_share_groups, share_group_seen
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from penstock.client.wire.admin.cluster import BrokerDescription, QuorumDescription
    from penstock.client.wire.admin.groups import GroupDescription, PartitionLag
    from penstock.pipelines.operate.reports import PipelineReport
    from penstock.spark.progress.query_progress import QueryProgress

GROUPS_MAX = 500
SAMPLE_S = 0.2
PIPELINES = "__pipelines"
GENERATION = "penstock_consumergroup_generation"

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    timeout_s: float = 5.0
    watch_s: float = 5.0
    """How long to observe groups that lag or rebalance."""
    settled_watch_s: float = 1.0
    """How long to observe groups that do not."""
    lag_max: int = 10_000
    transaction_ms: int = 15 * 60 * 1000
    """Transactions that are open for longer are examined."""


def observe(bootstrap: str, patience: Patience | None = None, options: Mapping[str, str] | None = None) -> Observations:
    """Observe a cluster; raise ClientError only for a bootstrap that is not an address. `options` are for security."""
    patience = patience or Patience()
    access = open_access(bootstrap, options)
    login, tls = login_from(access.properties), tls_from(access.properties)
    connecting = partial(Connection, timeout=patience.timeout_s, login=login, tls=tls)
    given = tuple(reach(connecting, host, port) for host, port in parse_bootstrap(access.bootstrap))
    usable = [reached for reached in given if reached.ok]
    if not usable:
        return Observations(bootstrap=given)
    addresses = ",".join(reached.address for reached in usable)
    with Admin(addresses, timeout=patience.timeout_s, options=access.properties) as admin:
        return _Look(admin, connecting, access.properties, patience, given, usable[0].cluster_id).at_all()


def reach(connecting: Callable[[str, int], Connection], host: str, port: int) -> Reached:
    """Return whether a broker answers at an address, and which cluster it reports."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return Reached(address, host, "name", error.strerror or str(error))
    is_loopback = all(ipaddress.ip_address(str(each[4][0]).partition("%")[0]).is_loopback for each in found)
    try:
        with connecting(host, port) as connection:
            if not connection.supports(ApiKey.METADATA):
                return Reached(address, host, "controller", is_loopback=is_loopback)
            metadata = connection.request(MetadataRequest(topics=[]), MetadataResponse)
    except ClientError as error:
        return Reached(address, host, _failure(error), str(error), is_loopback=is_loopback)
    return Reached(address, host, cluster_id=metadata.cluster_id, is_loopback=is_loopback)


def _failure(error: ClientError) -> Failure:
    cause = error.__cause__
    if isinstance(error, BadResponse):
        return "not-kafka"
    if isinstance(error, NotAuthorized):
        return "login"
    if isinstance(cause, ssl.SSLError):
        return "tls"
    if isinstance(error, TimedOut) or isinstance(cause, TimeoutError):
        return "silent"
    if isinstance(cause, ConnectionRefusedError):
        return "refused"
    if isinstance(cause, OSError) and not isinstance(cause, ConnectionError):
        return "silent"  # no route to it
    return "not-kafka"  # it closes the connection of a Kafka client


@dataclass
class _Look:
    """The observation of one cluster that answers."""

    admin: Admin
    connecting: Callable[[str, int], Connection]
    properties: Mapping[str, str]
    patience: Patience
    bootstrap: tuple[Reached, ...]
    cluster_id: str | None
    unobserved: list[str] = field(default_factory=list)

    def at_all(self) -> Observations:
        described = self._ask("brokers", self.admin.cluster.describe)
        brokers = () if described is None else tuple(map(self._broker, described.brokers))
        reachable = [each.broker_id for each in brokers if self._is_right(each)]
        hosts = {} if described is None else {each.broker_id: each.host for each in described.brokers}
        urls = find_pages(self.admin, {broker_id: hosts[broker_id] for broker_id in reachable})
        pages = read_pages(urls, self.patience.timeout_s, self.properties)
        lost = [each.broker_id for each in brokers if not each.fenced and not self._is_right(each)]
        if lost:  # any of them may lead or coordinate the objects of the next queries
            self.unobserved.append(f"groups and transactions: broker {', '.join(map(str, lost))} cannot be asked")
        began = time.monotonic()
        shares = {} if lost else look_at_share_groups(self.admin, pages, self.unobserved.append)
        groups = () if lost else self._groups(urls, pages)
        share_groups = self._share_groups(shares, began, urls)
        watched_ms = int((time.monotonic() - began) * 1000)
        partitions = self._partitions()
        has_pipelines = not lost and any(each.where.topic == PIPELINES for each in partitions)
        reported = self._ask("pipelines", self._pipelines) if has_pipelines else None
        pipelines, queries = reported or ((), ())
        return Observations(
            bootstrap=self.bootstrap,
            cluster_id=self.cluster_id,
            brokers=brokers,
            clocks=self._clocks(urls),
            partitions=partitions,
            quorum=None if described is None or described.quorum is None else _quorum(described.quorum),
            directories=self._directories(reachable),
            groups=groups,
            share_groups=share_groups,
            watched_ms=watched_ms,
            hanging=() if lost else self._hanging(),
            open_long=() if lost else self._open_long(),
            pipelines=pipelines,
            spark_queries=queries,
            now_ms=time.time_ns() // 1_000_000,
            unobserved=tuple(self.unobserved),
        )

    def _ask(self, what: str, question: Callable[[], Result]) -> Result | None:
        try:
            return question()
        except (ClientError, KafkaError) as error:
            self.unobserved.append(f"{what}: {' '.join(str(error).split())}")
            return None

    # -- brokers ----------------------------------------------------------------------------------------------------

    def _broker(self, broker: BrokerDescription) -> BrokerSeen:
        if broker.fenced:
            return BrokerSeen(broker.broker_id, None, fenced=True)
        reached = reach(self.connecting, broker.host, broker.port)
        elsewhere = reached.ok and reached.cluster_id == self.cluster_id and self._is_another(broker)
        return BrokerSeen(broker.broker_id, reached, is_somebody_else=elsewhere)

    def _is_right(self, broker: BrokerSeen) -> bool:
        """Whether clients find the broker at its advertised address."""
        reached = broker.reached
        return (
            reached is not None and reached.ok and reached.cluster_id == self.cluster_id and not broker.is_somebody_else
        )

    def _is_another(self, broker: BrokerDescription) -> bool:
        """Whether another broker answers at this one's address: no broker reports the settings of others."""
        resource = DescribeConfigsResource(
            resource_type=ResourceType.BROKER,
            resource_name=str(broker.broker_id),
            configuration_keys=["node.id"],
        )
        try:
            with self.connecting(broker.host, broker.port) as connection:
                answer = connection.request(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
        except ClientError:
            return False
        return any(result.error_code == ErrorCode.INVALID_REQUEST for result in answer.results)

    def _clocks(self, urls: Mapping[int, str]) -> tuple[ClockSeen, ...]:
        """Return clock offsets: from brokers' metrics, and from the active controller's quorum description."""
        clocks = []
        for broker_id, url in urls.items():
            before = time.time()
            try:
                clock_s = read_page(url, self.patience.timeout_s, self.properties).value("penstock_clock_seconds")
            except (OSError, ValueError):
                continue
            if clock_s is not None:
                clocks.append(_clock(broker_id, False, clock_s * 1000, before, time.time()))
        before = time.time()
        quorum = self._ask("the quorum", self.admin.cluster.quorum)
        after = time.time()
        if quorum is not None:
            reported_ms = [each.last_caught_up_ms for each in quorum.voters if each.node_id == quorum.leader_id]
            is_known = any(clock.node_id == quorum.leader_id for clock in clocks)
            if reported_ms and reported_ms[0] > 0 and not is_known:
                clocks.append(_clock(quorum.leader_id, True, reported_ms[0], before, after))
        return tuple(clocks)

    def _directories(self, brokers: Iterable[int]) -> tuple[DirectorySeen, ...]:
        found: list[DirectorySeen] = []
        for broker_id in brokers:
            found += self._ask(f"disks of broker {broker_id}", partial(self._disks_of, broker_id)) or ()
        return tuple(found)

    def _disks_of(self, broker_id: int) -> list[DirectorySeen]:
        return [
            DirectorySeen(each.broker_id, each.path, each.total_bytes, each.usable_bytes, each.error)
            for each in self.admin.log_dirs.describe([broker_id])
        ]

    # -- partitions and transactions --------------------------------------------------------------------------------

    def _partitions(self) -> tuple[PartitionSeen, ...]:
        found = []
        for topic in self._ask("topics", lambda: self.admin.topics.list(internal=True)) or ():
            lacks = any(each.under_replicated for each in topic.partitions)
            min_isr = self._min_isr(topic.name) if lacks else None
            found += [
                PartitionSeen(
                    TopicPartition(topic.name, each.partition),
                    each.leader,
                    tuple(each.replicas),
                    tuple(each.isr),
                    min_isr,
                )
                for each in topic.partitions
            ]
        return tuple(found)

    def _min_isr(self, topic: str) -> int | None:
        configs = self._ask(f"settings of {topic}", lambda: self.admin.configs.describe(ResourceType.TOPIC, topic))
        value = next((each.value for each in configs or () if each.name == "min.insync.replicas"), None)
        return None if value is None else int(value)

    def _hanging(self) -> tuple[TransactionSeen, ...]:
        now_ms = int(time.time() * 1000)
        found = self._ask(
            "hanging transactions",
            lambda: self.admin.transactions.find_hanging(longer_than_ms=self.patience.transaction_ms),
        )
        return tuple(
            TransactionSeen(
                each.transactional_id,
                each.producer.producer_id,
                now_ms - each.producer.last_timestamp,
                each.where,
                each.producer.transaction_start,
            )
            for each in found or ()
        )

    def _open_long(self) -> tuple[TransactionSeen, ...]:
        now_ms = int(time.time() * 1000)

        def look() -> tuple[TransactionSeen, ...]:
            listed = self.admin.transactions.list(states=["Ongoing"], longer_than_ms=self.patience.transaction_ms)
            described = self.admin.transactions.describe([each.transactional_id for each in listed]) if listed else []
            return tuple(
                TransactionSeen(each.transactional_id, each.producer_id, now_ms - each.start_ms)
                for each in described
                if each.start_ms is not None
            )

        return self._ask("open transactions", look) or ()

    # -- pipelines --------------------------------------------------------------------------------------------------

    def _pipelines(self) -> tuple[tuple[PipelineReport, ...], tuple[QueryProgress, ...]]:
        """The last reports of pipelines, and of other Spark queries. What reads them may not be installed."""
        try:
            from penstock.pipelines.operate.remote import reports
            from penstock.spark.progress.topic import queries
        except ImportError as error:
            self.unobserved.append(f"pipelines: {error}")
            return (), ()
        address = ",".join(reached.address for reached in self.bootstrap if reached.ok)
        return tuple(reports(address).values()), tuple(queries(address))

    # -- groups -----------------------------------------------------------------------------------------------------

    def _groups(self, urls: Mapping[int, str], pages: Mapping[int, Page]) -> tuple[GroupSeen, ...]:
        listed = self._ask("groups", lambda: self.admin.groups.list(types=WITH_OFFSETS)) or []
        names = [group.group_id for group in listed][:GROUPS_MAX]
        if len(listed) > GROUPS_MAX:
            self.unobserved.append(f"groups: only the first {GROUPS_MAX} of {len(listed)}")
        if not names:
            return ()
        began = time.monotonic()
        before = {name: self._lags(name) for name in names}
        samples: dict[str, list[GroupSample]] = {name: [] for name in names}
        last: dict[str, GroupDescription] = {}
        generations = _generations(pages)
        while True:
            for group in self._described(names):
                last[group.group_id] = group
                # For classic groups only the metrics report it, and they are read twice.
                generation = generations.pop(group.group_id, None) if group.epoch is None else group.epoch
                members = frozenset(member.member_id for member in group.members)
                samples[group.group_id].append(GroupSample(group.state, generation, members))
            settled = all(self._is_settled(samples[name], before[name]) for name in names)
            patience_s = self.patience.settled_watch_s if settled else self.patience.watch_s
            left_s = began + patience_s - time.monotonic()
            if left_s <= 0:
                break
            time.sleep(min(SAMPLE_S, left_s))
        generations = _generations(read_pages(urls, self.patience.timeout_s, self.properties))
        return tuple(
            GroupSeen(
                name,
                (*samples[name], *_last_sample(samples[name], generations.get(name))),
                last[name].who() if name in last and last[name].members else "",
                _progress(before[name], self._lags(name)),
            )
            for name in names
        )

    def _share_groups(
        self, before: Mapping[str, ShareLook], began: float, urls: Mapping[int, str]
    ) -> tuple[ShareGroupSeen, ...]:
        """Look at share groups again at the end of the watch, which other groups may have made longer."""
        if not before:
            return ()
        lags = any(each.lag > self.patience.lag_max for each in before.values())
        patience_s = self.patience.watch_s if lags else self.patience.settled_watch_s
        time.sleep(max(0.0, began + patience_s - time.monotonic()))
        pages = read_pages(urls, self.patience.timeout_s, self.properties)
        after = look_at_share_groups(self.admin, pages, self.unobserved.append)
        return tuple(share_group_seen(before.get(name, look), look, pages) for name, look in after.items())

    def _is_settled(self, samples: list[GroupSample], lags: list[PartitionLag]) -> bool:
        return (
            len({(sample.state, sample.members) for sample in samples}) <= 1
            and len({sample.generation for sample in samples if sample.generation is not None}) <= 1
            and not any(sample.state in REBALANCING for sample in samples)
            and sum(each.lag or 0 for each in lags) <= self.patience.lag_max
        )

    def _described(self, names: list[str]) -> list[GroupDescription]:
        """Describe groups; one that is deleted meanwhile has no more samples."""
        try:
            return self.admin.groups.describe(names)
        except (ClientError, KafkaError):
            return [group for name in names if (group := self._find(name)) is not None]

    def _find(self, name: str) -> GroupDescription | None:
        return self._ask(f"group {name}", lambda: self.admin.groups.find(name))

    def _lags(self, name: str) -> list[PartitionLag]:
        return self._ask(f"lag of group {name}", lambda: self.admin.groups.lag(name)) or []


def _clock(node_id: int, is_controller: bool, reported_ms: float, before: float, after: float) -> ClockSeen:
    middle_ms = (before + after) * 500
    return ClockSeen(node_id, is_controller, reported_ms - middle_ms, (after - before) * 500)


def _quorum(described: QuorumDescription) -> QuorumSeen:
    lags = ((each.node_id, max(0, described.high_watermark - each.log_end_offset)) for each in described.voters)
    return QuorumSeen(described.leader_id, tuple(lags))


def _generations(pages: Mapping[int, Page]) -> dict[str, int]:
    found: dict[str, int] = {}
    for page in pages.values():
        for labels, value in page.of(GENERATION):
            found[labels["consumergroup"]] = int(value)
    return found


def _last_sample(samples: list[GroupSample], generation: int | None) -> list[GroupSample]:
    """Return the last sample of a classic group, with the generation that only the metrics report."""
    if generation is None or not samples:
        return []
    return [GroupSample(samples[-1].state, generation, samples[-1].members)]


def _progress(before: list[PartitionLag], after: list[PartitionLag]) -> tuple[ProgressSeen, ...]:
    earlier = {(each.topic, each.partition): each for each in before}
    found = []
    for each in after:
        first = earlier.get((each.topic, each.partition), each)
        if each.committed is not None and each.end is not None:
            found.append(
                ProgressSeen(
                    TopicPartition(each.topic, each.partition),
                    each.committed,
                    each.committed if first.committed is None else first.committed,
                    each.end,
                    each.member_id is not None,
                )
            )
    return tuple(found)
