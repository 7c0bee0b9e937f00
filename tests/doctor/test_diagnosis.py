"""The doctor's knowledge, without sockets: what is seen in, what is found out."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from penstock.doctor.diagnosis import can_check, diagnose
from penstock.doctor.findings import Finding, Limits
from penstock.doctor.observations import (
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
    ShareProgressSeen,
    TransactionSeen,
)
from penstock.model.ids import TopicPartition
from penstock.pipelines.operate.reports import PipelineReport, QueryReport
from penstock.spark.progress.query_progress import QueryProgress, SourceProgress

GIB = 2**30
HERE = Reached("127.0.0.1:9092", "127.0.0.1", cluster_id="ours", is_loopback=True)
AFAR = Reached("kafka.example.com:9092", "kafka.example.com", cluster_id="ours")


def partition(
    index: int = 0,
    *,
    leader: int | None = 1,
    isr: tuple[int, ...] = (1, 2, 3),
    replicas: tuple[int, ...] = (1, 2, 3),
    min_isr: int | None = None,
) -> PartitionSeen:
    return PartitionSeen(TopicPartition("orders", index), leader, replicas, isr, min_isr)


def broker(broker_id: int, **changes: object) -> BrokerSeen:
    reached = dataclasses.replace(AFAR, address=f"broker-{broker_id}:9092", host=f"broker-{broker_id}")
    return BrokerSeen(broker_id, dataclasses.replace(reached, **changes))  # type: ignore[arg-type]


HEALTHY = Observations(
    bootstrap=(AFAR,),
    cluster_id="ours",
    brokers=(broker(1), broker(2), broker(3)),
    clocks=(ClockSeen(1, False, 3.0, 2.0),),
    partitions=(partition(0), partition(1, leader=2)),
    quorum=QuorumSeen(10_001, ((10_001, 0), (10_002, 3))),
    directories=(DirectorySeen(1, "/data", 100 * GIB, 60 * GIB),),
    watched_ms=5000,
)


def sample(state: str = "Stable", generation: int | None = 7, *members: str) -> GroupSample:
    return GroupSample(state, generation, frozenset(members))


def progress(lag: int, *, moved: int = 0, index: int = 0, has_member: bool = True) -> ProgressSeen:
    end = 100_000
    where = TopicPartition("orders", index)
    return ProgressSeen(where, end - lag, end - lag - moved, end, has_member)


def found(limits: Limits | None = None, **changes: object) -> list[Finding]:
    return diagnose(dataclasses.replace(HEALTHY, **changes), limits)  # type: ignore[arg-type]


def only(limits: Limits | None = None, **changes: object) -> Finding:
    findings = found(limits, **changes)
    assert len(findings) == 1, findings
    return findings[0]


def test_a_healthy_cluster_has_no_findings() -> None:
    assert found() == []
    assert can_check(HEALTHY)


@pytest.mark.parametrize("failure", ["name", "refused", "silent", "not-kafka", "controller", "tls", "login"])
def test_a_bootstrap_address_that_cannot_be_used(failure: Failure) -> None:
    bad = Reached("gone:9092", "gone", failure, "in its own words")
    alone = Observations(bootstrap=(bad,))
    assert not can_check(alone)
    (finding,) = diagnose(alone)
    assert (finding.code, finding.severity) == ("bootstrap-unreachable", "error")
    assert "in its own words" in finding.why
    beside = only(bootstrap=(bad, AFAR))
    assert beside.severity == "warning"


def test_the_wrong_cluster() -> None:
    assert only(Limits(cluster_id="theirs")).what == "this is cluster ours, not theirs"
    assert found(Limits(cluster_id="ours")) == []
    other = Reached("b:9092", "b", cluster_id="theirs")
    assert only(bootstrap=(AFAR, other)).code == "wrong-cluster"


def test_listeners_that_mislead() -> None:
    others = HEALTHY.brokers[1:]
    own_machine = broker(1, address="127.0.0.1:9092", host="127.0.0.1", is_loopback=True)
    finding = only(brokers=(own_machine, *others))
    assert (finding.code, finding.subject) == ("listener-misleading", "broker 1")
    assert "the client's own machine" in finding.what
    assert found(bootstrap=(HERE,), brokers=(own_machine, *others)) == []  # we are on that machine

    wildcard = broker(1, address="0.0.0.0:9092", host="0.0.0.0", failure="refused")
    assert "no address" in only(brokers=(wildcard, *others)).what

    assert "another cluster" in only(brokers=(broker(1, cluster_id="theirs"), *others)).what

    taken = dataclasses.replace(broker(2), is_somebody_else=True)
    assert "another broker of the cluster" in only(brokers=(taken, *others)).what


def test_a_listener_that_cannot_be_reached() -> None:
    silent = broker(1, failure="silent", error="no answer", cluster_id=None)
    finding = only(brokers=(silent, *HEALTHY.brokers[1:]))
    assert finding.code == "listener-unreachable"
    assert "it leads 1 partition that clients here cannot use" in finding.why
    assert "firewall" in finding.why
    assert "advertised.listeners" in finding.todo


def test_a_broker_that_is_down_and_what_it_takes_with_it() -> None:
    brokers = (*HEALTHY.brokers[:2], BrokerSeen(3, None, fenced=True))
    partitions = (
        partition(0, isr=(1, 2), min_isr=2),
        partition(1, isr=(1,), replicas=(1, 3), min_isr=2),
        partition(2, leader=None, isr=(3,), replicas=(3,)),
        partition(3, isr=(2, 1), min_isr=2),
    )
    findings = {finding.code: finding for finding in found(brokers=brokers, partitions=partitions)}
    assert list(findings) == [
        "broker-down",
        "partition-offline",
        "partition-under-min-isr",
        "partition-under-replicated",
    ]
    assert findings["partition-offline"].subject == "orders-2"
    assert "start broker 3" in findings["partition-offline"].todo
    assert findings["partition-under-min-isr"].subject == "orders-1"
    assert findings["partition-under-replicated"].subject == "orders-0, orders-3"  # one cause, one finding
    assert "it is down" in findings["partition-under-replicated"].why


def test_a_follower_that_does_not_keep_up() -> None:
    finding = only(partitions=tuple(partition(index, isr=(1, 2)) for index in range(9)))
    assert finding.code == "partition-under-replicated"
    assert finding.subject.endswith("orders-4 and 4 more")
    assert "it runs, but does not keep up" in finding.why


def test_controllers() -> None:
    assert only(quorum=QuorumSeen(-1, ())).code == "no-controller"
    finding = only(quorum=QuorumSeen(1, ((1, 0), (2, 5000), (3, 0))))
    assert (finding.code, finding.subject) == ("controller-behind", "controller 2")


@pytest.mark.parametrize(("offset_ms", "said"), [(3_600_000, "3600.0 s ahead of"), (-2_500, "2.5 s behind")])
def test_clocks(offset_ms: float, said: str) -> None:
    finding = only(clocks=(ClockSeen(2, False, offset_ms, 10),))
    assert (finding.code, finding.subject) == ("clock-skew", "broker 2")
    assert said in finding.what


def test_what_the_network_may_explain_is_no_skew() -> None:
    assert found(clocks=(ClockSeen(2, False, 3000, 1500),)) == []


def test_disks() -> None:
    finding = only(directories=(DirectorySeen(2, "/data", 100 * GIB, 9 * GIB),))
    assert (finding.code, finding.severity) == ("disk-nearly-full", "warning")
    assert "9.0% left (/data)" in finding.what
    assert only(directories=(DirectorySeen(2, "/data", 100 * GIB, GIB),)).severity == "error"
    assert found(directories=(DirectorySeen(2, "/data", None, None),)) == []
    assert found(Limits(disk_free_min=0.0), directories=(DirectorySeen(2, "/data", 100, 0),)) == []
    assert only(directories=(DirectorySeen(2, "/data", None, None, "KAFKA_STORAGE_ERROR"),)).code == "disk-failed"


def test_transactions() -> None:
    hanging = TransactionSeen(None, 77, 3_600_000, TopicPartition("orders", 1), 42)
    finding = only(hanging=(hanging,))
    assert (finding.code, finding.subject) == ("transaction-hanging", "orders-1")
    assert finding.todo == "penstock transactions abort orders:1 --start-offset 42"
    assert "60 min" in finding.why
    finding = only(open_long=(TransactionSeen("billing", 77, 1_000_000),))
    assert (finding.code, finding.subject) == ("transaction-long", "billing")


@pytest.mark.parametrize(
    ("members", "partitions", "why"),
    [
        ((), [progress(20_000)], "has no members"),
        (("a",), [progress(20_000, has_member=False), progress(0, index=1)], "read by no member, orders-0"),
        (("a",), [progress(20_000)], "nothing was committed in 5 s"),
        (("a",), [progress(20_000, moved=10), progress(1, index=1)], "slower than the producers: most is in orders-0"),
        (("a", "b"), [progress(20_000, moved=10), progress(1, index=1)], "slower than the producers"),
    ],
)
def test_a_group_that_lags(members: tuple[str, ...], partitions: list[ProgressSeen], why: str) -> None:
    finding = only(groups=(GroupSeen("billing", (sample("Stable", 7, *members),), "", tuple(partitions)),))
    assert (finding.code, finding.subject) == ("group-lagging", "billing")
    assert why in finding.why


def share_progress(
    lag: int, *, before: int | None = None, moved: int = 0, has_member: bool = True
) -> ShareProgressSeen:
    where = TopicPartition("jobs", 0)
    return ShareProgressSeen(where, 100, 100 - moved, lag, lag if before is None else before, has_member)


@pytest.mark.parametrize(
    ("group", "why"),
    [
        (ShareGroupSeen("workers", 0, "", (share_progress(20_000),)), "has no members"),
        (ShareGroupSeen("workers", 1, "", (share_progress(20_000, has_member=False),)), "no member, jobs-0"),
        (ShareGroupSeen("workers", 2, "", (share_progress(20_000),)), "nothing was finished in 5 s"),
        (ShareGroupSeen("workers", 2, "", (share_progress(20_000),), 0, 7), "have 7 records and nothing was finished"),
        (ShareGroupSeen("workers", 2, "", (share_progress(20_000, before=19_000),), 5), "it grew by 1000 in 5 s"),
        (ShareGroupSeen("workers", 2, "", (share_progress(20_000, moved=3),)), "slower than the producers"),
        (ShareGroupSeen("workers", 1, "", (share_progress(20_000, before=30_000),)), "slower than the producers"),
    ],
)
def test_a_share_group_that_lags(group: ShareGroupSeen, why: str) -> None:
    finding = only(share_groups=(group,))
    assert (finding.code, finding.subject) == ("share-group-lagging", "workers")
    assert finding.what == "share group 'workers' has 20000 records to do"
    assert why in finding.why
    assert found(Limits(lag_max=20_000), share_groups=(group,)) == []


def test_records_that_a_share_group_cannot_handle() -> None:
    group = ShareGroupSeen("workers", 2, "crane on 10.0.0.1 (2)", (), 1, 1, last_attempts=3, discarded=1)
    attempts, discards = found(share_groups=(group,))
    assert (attempts.code, attempts.what) == (
        "share-group-last-attempts",
        "3 records of share group 'workers' have one attempt left",
    )
    assert "(crane on 10.0.0.1 (2))" in attempts.why
    assert (discards.code, discards.subject) == ("share-group-discards", "workers")
    assert "given up 1 record since" in discards.what
    assert len(found(Limits(dead_letters_max=1), share_groups=(group,))) == 1


def test_a_group_within_its_limit_is_left_alone() -> None:
    group = GroupSeen("billing", (sample(),), "", (progress(20_000),))
    assert found(Limits(lag_max=20_000), groups=(group,)) == []


@pytest.mark.parametrize(
    "samples",
    [
        [sample("Stable", 3, "a"), sample("Stable", 6, "a")],  # the generation tells
        [sample("Stable", None, "a"), sample("Stable", None, "b"), sample("Stable", None, "c")],  # the members do
        [sample("Stable", None, "a"), sample("PreparingRebalance", None, "a")] * 2,  # the states do
        [sample("Stable", None, "a"), sample("Empty", None), sample("Stable", None, "b"), sample("Stable", None, "c")],
    ],
)
def test_a_group_that_does_not_come_to_rest(samples: list[GroupSample]) -> None:
    group = GroupSeen("billing", tuple(samples), "billing on 10.0.0.1", (progress(20_000),))
    finding = only(groups=(group,))
    assert (finding.code, finding.subject) == ("group-rebalancing", "billing")
    assert "billing on 10.0.0.1" in finding.why


def test_one_rebalance_is_none_too_many() -> None:
    samples = (sample("Stable", 3, "a"), sample("PreparingRebalance", 3, "a"), sample("Stable", 4, "a", "b"))
    assert found(groups=(GroupSeen("billing", samples),)) == []


# -- pipelines ---------------------------------------------------------------------------------------------------------

NOW_MS = 1_700_000_000_000
SPARK_GROUP = "spark-shop.orders"


def pipeline(as_a_whole: str = "running", *, ago_ms: int = 1000, **changes: object) -> PipelineReport:
    query = QueryReport(name="orders", state="running", groups=(SPARK_GROUP,), batch_ended_ms=NOW_MS - 60_000)
    report: dict[str, Any] = {
        "name": "shop",
        "run_id": "r",
        "state": as_a_whole,
        "file": "shop.yaml",
        "driver": "host:7",
        "started_ms": NOW_MS - 3_600_000,
        "heartbeat_ms": NOW_MS - ago_ms,
        "queries": (dataclasses.replace(query, **changes),),  # type: ignore[arg-type]
    }
    return PipelineReport(**report)


def spark_group(lag: int, *, moved: int = 0) -> GroupSeen:
    """Spark's groups never have members."""
    return GroupSeen(SPARK_GROUP, (sample("Empty"),), "", (progress(lag, moved=moved, has_member=False),))


def test_the_group_of_a_pipeline_that_keeps_up_is_left_alone() -> None:
    assert found(pipelines=(pipeline(),), groups=(spark_group(100),), now_ms=NOW_MS) == []
    # The same group without a pipeline has no reader.
    assert only(groups=(spark_group(20_000),)).code == "group-lagging"


@pytest.mark.parametrize(
    ("report", "group", "code", "what", "why", "todo"),
    [
        (
            pipeline(),
            spark_group(20_000),
            "pipeline-lagging",
            "query 'orders' of pipeline 'shop' is 20000 records behind",
            "no batch ended in 5 s; the last one ended 60 s ago",
            "pipeline status shop",
        ),
        (
            pipeline(processed_rows_per_second=70.4),
            spark_group(20_000, moved=10),
            "pipeline-lagging",
            "20000 records behind",
            "slower than the producers: 70 rows a second",
            "more cores",
        ),
        (
            pipeline("lost", ago_ms=7_200_000),
            spark_group(12),
            "pipeline-lost",
            "pipeline 'shop' was last heard of 120 min ago; 12 records wait for it",
            "its driver (host:7) was killed",
            "penstock pipeline run shop.yaml",
        ),
        (
            pipeline("failed", error="no table", error_ms=5),
            spark_group(0),
            "pipeline-failed",
            "pipeline 'shop' has failed, 1 s ago",
            'query "orders": no table',
            "penstock pipeline run shop.yaml",
        ),
        (
            pipeline("stopped", ago_ms=600_000),
            spark_group(20_000),
            "pipeline-not-running",
            "pipeline 'shop' does not run, and 20000 records wait for it",
            "it was stopped 10 min ago",
            "groups delete spark-shop.orders",
        ),
        (
            pipeline("backing off", state="backing off", failures=4, error="refused"),
            spark_group(20_000),
            "pipeline-failing",
            "fails again and again: 4 times in a row",
            "refused",
            "nothing is lost",
        ),
        (
            pipeline(dead_letters=3),
            spark_group(0),
            "pipeline-dead-letters",
            "pipeline 'shop' has put 3 records aside as dead letters",
            "since it started, 60 min ago",
            "penstock pipeline dead-letters shop.yaml",
        ),
    ],
)
def test_pipelines(report: PipelineReport, group: GroupSeen, code: str, what: str, why: str, todo: str) -> None:
    finding = only(pipelines=(report,), groups=(group,), now_ms=NOW_MS)
    assert finding.code == code
    assert what in finding.what
    assert why in finding.why
    assert todo in finding.todo


def test_pipelines_that_are_as_they_should_be() -> None:
    stopped = pipeline("stopped", ago_ms=600_000)
    assert found(pipelines=(stopped,), groups=(spark_group(10),), now_ms=NOW_MS) == []
    backfill = dataclasses.replace(pipeline("failed", error="x"), backfill_of="shop")
    assert found(pipelines=(backfill,), groups=(spark_group(20_000),), now_ms=NOW_MS) == []
    assert found(Limits(dead_letters_max=3), pipelines=(pipeline(dead_letters=3),), now_ms=NOW_MS) == []


@pytest.mark.parametrize(
    ("state", "why"), [("running", "slower than the producers"), ("failed", "does not run: failed, oops")]
)
def test_a_spark_query_that_is_no_pipeline(state: str, why: str) -> None:
    source = SourceProgress(description="orders", group=SPARK_GROUP)
    told: dict[str, Any] = {"state": state, "error": "oops" if state == "failed" else None, "sources": (source,)}
    query = QueryProgress(query_id="q", run_id="r", name="mine", started_ms=0, heartbeat_ms=0, **told)
    finding = only(spark_queries=(query,), groups=(spark_group(20_000),), now_ms=NOW_MS)
    assert (finding.code, finding.what) == ("spark-query-lagging", "the Spark query 'mine' is 20000 records behind")
    assert why in finding.why
