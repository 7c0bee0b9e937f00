"""ACLs on a node: what clients without a right can see, and what happens when ACLs change, are missing or unknown."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable

import pytest

from acl_table import (
    ALTER,
    ALTER_CONFIGS,
    BROKER_ROWS,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    ID,
    READ,
    TOPIC,
    WRITE,
    G,
    T,
    codes,
    config,
)
from penstock.metadata.image import ResourceType
from penstock.model.errors import ErrorCode
from penstock.protocol.declaration import Message
from penstock.protocol.messages import (
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_topics,
    describe_acls,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_quorum,
    describe_topic_partitions,
    incremental_alter_configs,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
)
from penstock.security.acls import Acl, PatternType, Permission
from penstock.security.authorizer import (
    CLUSTER,
    Operation,
    group_resource,
)
from penstock.security.principal import Principal
from penstock.simulator import requests
from penstock.simulator.client import Lost
from penstock.simulator.requests import batch
from penstock.simulator.stories.broker_world import HOST, BrokerWorld
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from quorum_world import snapshot
from simulation.acl_node import ALICE, CONTROLLER_PORT, ROOT, Secured, with_secured


def test_who_may_not_describe_a_topic_cannot_tell_whether_it_exists() -> None:
    """Named topics get the same answer, byte for byte, whether or not they exist."""

    async def program(secured: Secured) -> None:
        alice = await secured.client(ALICE)
        await secured.root.create_topic("h")

        async def answers(make: Callable[[str], Message], version: int | None = None) -> None:
            there, nowhere = [str(await alice.ask(make(name), version)) for name in ("h", "n")]
            assert there.replace("'h'", "'n'") == nowhere
            assert "29" in there

        await answers(lambda name: metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=name)]))
        await answers(
            lambda name: describe_topic_partitions.DescribeTopicPartitionsRequest(
                topics=[describe_topic_partitions.TopicRequest(name=name)]
            )
        )
        await answers(lambda name: requests.fetch_request(name, 0), 12)
        await answers(lambda name: requests.produce_request(name, batch(b"v", timestamp=1)), 12)
        await answers(
            lambda name: list_offsets.ListOffsetsRequest(
                topics=[list_offsets.ListOffsetsTopic(name=name, partitions=[list_offsets.ListOffsetsPartition()])]
            )
        )
        await answers(
            lambda name: delete_topics.DeleteTopicsRequest(topics=[delete_topics.DeleteTopicState(name=name)])
        )
        await answers(lambda name: config(describe_configs, ResourceType.TOPIC, name))
        await answers(lambda name: config(incremental_alter_configs, ResourceType.TOPIC, name))

    with_secured(program)


def test_lists_and_ids_show_only_what_may_be_described() -> None:
    async def program(secured: Secured) -> None:
        alice = await secured.client(ALICE)
        everything = metadata.MetadataRequest(topics=None)
        (topic_id,) = (each.topic_id for each in (await secured.root.ask(everything)).topics if each.name == "t")
        by_id = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=None, topic_id=topic_id)])
        by_none = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=None, topic_id=b"x" * 16)])
        all_partitions = describe_topic_partitions.DescribeTopicPartitionsRequest()

        async def seen() -> tuple[list[str], list[str], list[str], list[str]]:
            groups = await alice.ask(list_groups.ListGroupsRequest())
            transactions = await alice.ask(list_transactions.ListTransactionsRequest())
            return (
                sorted(each.name for each in (await alice.ask(everything)).topics),
                sorted(each.name for each in (await alice.ask(all_partitions)).topics),
                sorted(each.group_id for each in groups.groups),
                sorted(each.transactional_id for each in transactions.transaction_states),
            )

        await secured.grant()
        assert await seen() == ([], [], [], [])
        (refused,) = (await alice.ask(by_id)).topics
        assert (refused.error_code, refused.name, refused.topic_id) == (T, None, topic_id)
        (unknown,) = (await alice.ask(by_none)).topics
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        await secured.grant((READ, TOPIC), (READ, group_resource("new")), (WRITE, ID))  # each implies Describe
        assert await seen() == (["t"], ["t"], ["new"], ["x"])
        (shown,) = (await alice.ask(by_id)).topics
        assert (shown.error_code, shown.name) == (0, "t")
        await secured.grant((DESCRIBE, CLUSTER))
        assert (await seen())[2] == ["new"]

    with_secured(program)


def test_authorized_operations_are_bits() -> None:
    async def program(secured: Secured) -> None:
        alice = await secured.client(ALICE)
        asks = metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name="t")], include_topic_authorized_operations=True
        )
        cluster = describe_cluster.DescribeClusterRequest(endpoint_type=1, include_cluster_authorized_operations=True)
        groups = describe_groups.DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)

        def bits(*operations: Operation) -> int:
            return sum(1 << operation for operation in operations)

        await secured.grant((WRITE, TOPIC), (ALTER_CONFIGS, TOPIC), (ALTER, CLUSTER), (READ, GROUP))
        (topic,) = (await alice.ask(asks)).topics
        assert topic.topic_authorized_operations == bits(WRITE, DESCRIBE, ALTER_CONFIGS, DESCRIBE_CONFIGS)
        assert (await alice.ask(cluster)).cluster_authorized_operations == bits(ALTER, DESCRIBE)
        (topic,) = (await secured.root.ask(asks)).topics
        every = bits(READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
        assert topic.topic_authorized_operations == every
        await secured.grant((READ, TOPIC))
        assert (await alice.ask(cluster)).cluster_authorized_operations == 0
        plain = describe_cluster.DescribeClusterRequest(endpoint_type=1)
        assert (await alice.ask(plain)).cluster_authorized_operations == -(2**31)
        assert (await alice.ask(groups)).groups[0].error_code == G

    with_secured(program)


def test_some_topics_of_a_request_are_forbidden_and_others_are_not() -> None:
    async def program(secured: Secured) -> None:
        alice = await secured.client(ALICE)
        await secured.add(
            Acl(2, "mine-", PatternType.PREFIXED, "User:alice", "*", CREATE, Permission.ALLOW),
            Acl(2, "mine-", PatternType.PREFIXED, "User:alice", "*", ALTER, Permission.ALLOW),
            Acl(2, "mine-", PatternType.PREFIXED, "User:alice", "*", DELETE, Permission.ALLOW),
            Acl(2, "mine-not", PatternType.LITERAL, "User:*", "*", Operation.ALL, Permission.DENY),
        )
        names = ("mine-1", "mine-not", "yours")
        made = [create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        response = await alice.ask(create_topics.CreateTopicsRequest(topics=made))
        assert {each.name: each.error_code for each in response.topics} == {"mine-1": 0, "mine-not": T, "yours": T}
        (good,) = (each for each in response.topics if each.name == "mine-1")
        # Created, but its settings are not shown.
        assert (good.topic_config_error_code, good.num_partitions, good.configs) == (T, -1, [])
        for name in names[1:]:
            assert await secured.root.create_topic(name) is ErrorCode.NONE
        more = [create_partitions.CreatePartitionsTopic(name=name, count=2, assignments=None) for name in names]
        results = (await alice.ask(create_partitions.CreatePartitionsRequest(topics=more))).results
        assert {each.name: each.error_code for each in results} == {"mine-1": 0, "mine-not": T, "yours": T}
        ids = await secured.root.topics()
        gone = delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.DeleteTopicState(name=None, topic_id=ids[name]) for name in names]
        )
        responses = (await alice.ask(gone)).responses
        assert {each.topic_id: (each.name, each.error_code) for each in responses} == {
            ids["mine-1"]: ("mine-1", 0),
            ids["mine-not"]: (None, T),
            ids["yours"]: (None, T),
        }

    with_secured(program)


def test_an_expression_matches_only_topics_that_the_member_may_describe() -> None:
    async def program(secured: Secured) -> None:
        alice = await secured.client(ALICE)
        for name in ("open-1", "open-2", "secret"):
            await secured.root.create_topic(name)
        await secured.add(
            Acl(2, "open-", PatternType.PREFIXED, "User:alice", "*", READ, Permission.ALLOW),
            Acl(3, "r", PatternType.LITERAL, "User:alice", "*", READ, Permission.ALLOW),
        )
        join = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id="r",
            member_id="m",
            rebalance_timeout_ms=1000,
            subscribed_topic_names=[],
            subscribed_topic_regex=".*",
            topic_partitions=[],
        )
        answer = await alice.ask(join)
        assert answer.error_code == 0
        names = {topic_id: name for name, topic_id in (await secured.root.topics()).items()}
        assert {names[each.topic_id] for each in answer.assignment.topic_partitions} == {"open-1", "open-2"}

    with_secured(program)


def test_the_acls_of_a_connection_hold_from_the_next_request_on() -> None:
    """Plain produce requests keep the decision with the connection: it must not outlive its ACLs."""

    async def program(secured: Secured) -> None:
        alice = await secured.client(ALICE)
        for allowed in (True, False, True):
            await secured.grant(*([(WRITE, TOPIC)] if allowed else []))
            for _ in range(3):
                answer = await alice.produce("t", batch(b"v", timestamp=1))
                assert answer.error_code == (0 if allowed else T)
        await secured.add(Acl(2, "t", PatternType.LITERAL, "User:*", "*", WRITE, Permission.DENY))
        assert (await alice.produce("t", batch(b"v", timestamp=1))).error_code == T
        assert (await secured.root.produce("t", batch(b"v", timestamp=1))).error_code == 0

    with_secured(program)


def test_acls_survive_a_restart_and_a_snapshot() -> None:
    quietly()

    async def run(loop: SimulatedLoop) -> None:
        secured = Secured(loop)
        await secured.start()
        await secured.grant((READ, TOPIC))
        assert secured.world.node is not None
        await snapshot(secured.world.node.quorum)
        await secured.add(Acl(2, "t", PatternType.LITERAL, "User:bob", "*", READ, Permission.ALLOW))
        await secured.world.stop()
        await secured.close()
        await secured.world.start()
        for who, error in ((ALICE, 0), (Principal("User", "bob"), 0), (Principal("User", "eve"), T)):
            client = await secured.client(who)
            assert (await client.fetch("t", 0)).error_code == error
        await secured.close()

    simulate(run, 1)


def test_without_an_authorizer_there_are_no_acls() -> None:
    quietly()

    async def run(loop: SimulatedLoop) -> None:
        world = BrokerWorld(loop, 1)
        await world.start()
        async with world.client() as client:
            for each in BROKER_ROWS:
                if isinstance(each.request, (describe_acls.DescribeAclsRequest, create_acls.CreateAclsRequest)):
                    assert codes(await client.ask(each.request)) == {ErrorCode.SECURITY_DISABLED}

    simulate(run, 1)


def test_unknown_types_close_the_connection() -> None:
    async def program(secured: Secured) -> None:
        for each in BROKER_ROWS:
            if isinstance(each.request, describe_acls.DescribeAclsRequest):
                bad = copy.copy(each.request)
                bad.operation = 0
        client = await secured.client(ROOT)
        with pytest.raises(Lost):
            await client.ask(bad)

    with_secured(program)


def audited(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "penstock.audit"]


def test_refusals_and_changes_are_in_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    async def program(secured: Secured) -> None:
        caplog.set_level(logging.INFO, "penstock.audit")
        alice = await secured.client(ALICE)
        caplog.clear()
        await alice.ask(metadata.MetadataRequest(topics=None))
        assert not audited(caplog)  # nothing was asked for by name
        await alice.fetch("t", 0)
        await secured.root.create_topic("orders", {"retention.ms": "77777"})
        told = audited(caplog)
        host = "from host = "
        assert [line.partition(host)[0] for line in told] == [
            "Principal = User:alice is Denied operation = READ ",
            "Principal = User:root ",
        ]
        assert told[0].endswith("on resource = TOPIC:LITERAL:t for request = Fetch based on rule DefaultDeny")
        assert told[1].endswith("changed the cluster by request = CreateTopics of orders")

    with_secured(program)


def test_a_controller_waits_for_its_acls_and_superusers_do_not() -> None:
    """Nothing is known of denials before the metadata is loaded: clients have to come again."""
    quietly()

    async def run(loop: SimulatedLoop) -> None:
        # The other voter does not exist, so no leader is elected, and nothing is known to be committed.
        secured = Secured(
            loop,
            **{
                "process.roles": "controller",
                "listeners": f"CONTROLLER://{HOST}:{CONTROLLER_PORT}",
                "controller.quorum.voters": f"1@{HOST}:{CONTROLLER_PORT},2@nowhere:1",
            },
        )
        await secured.world.start()
        asks = describe_quorum.DescribeQuorumRequest()
        root = await secured.client(ROOT, CONTROLLER_PORT)
        assert codes(await root.ask(asks)) == set()
        alice = await secured.client(ALICE, CONTROLLER_PORT)
        with pytest.raises(Lost):
            await alice.ask(asks)
        await secured.close()

    simulate(run, 1)
