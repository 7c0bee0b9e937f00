"""Pages in a real browser, against a real Apache Kafka: all but those that show what Penstock's own topics hold.

The node has an authorizer, so that ACLs can be edited; clients of PLAINTEXT may do everything, and people who
sign in use SASL. It does not verify transactions, so that one can hang. `make test` runs what takes seconds, `make
soak` the rest.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer

from apache_kafka import CLUSTER_ID, KafkaNode
from clients.librdkafka import close
from console_process import RunningConsole, running_console
from penstock import ShareConsumer
from penstock.arrow import read_table
from penstock.client.wire.admin import Acl, Admin
from penstock.client.wire.connection import Connection
from penstock.local.ports import free_ports
from penstock.model.ids import TopicPartition
from penstock.protocol.messages.produce import ProduceResponse
from penstock.simulator.requests import batch, now_ms, only_partition, produce_request
from waiting import wait_until

pytest.importorskip("starlette", reason="the extra `console` is not installed")

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ORDERS = 300
HOUR_MS = 3_600_000
PASSWORD = "correct horse battery"
UNVERIFIED_PRODUCE = 11  # later versions are always checked with the coordinator


@pytest.fixture(scope="module")
def ports() -> tuple[int, int, int]:
    """For everybody, for those with a password, for controllers."""
    port, passwords, controllers = free_ports(3)
    return port, passwords, controllers


@pytest.fixture(scope="module")
def kafka(ports: tuple[int, int, int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    port, sasl_port, controller_port = ports
    node = KafkaNode(
        1,
        tmp_path_factory.mktemp("kafka"),
        port=port,
        controller_port=controller_port,
        properties={
            "listeners": f"PLAINTEXT://127.0.0.1:{port},PASSWORDS://127.0.0.1:{sasl_port},"
            f"CONTROLLER://127.0.0.1:{controller_port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PASSWORDS:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.passwords.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "transaction.partition.verification.enable": "false",
        },
        heap_mb=512,
    )
    node.format(CLUSTER_ID, "--standalone")
    node.start()
    try:
        node.wait_ready()
        yield node
    finally:
        node.stop()


@pytest.fixture(scope="module")
def console(kafka: KafkaNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """In the place of the one that all other tests share."""
    with running_console(tmp_path_factory.mktemp("console"), kafka.bootstrap) as running:
        yield running


@pytest.fixture(scope="module")
def orders(kafka: KafkaNode, unique_topic: Callable[[str], str]) -> str:
    """Three partitions; every tenth order is open, and one key is HTML."""
    name = unique_topic("orders")
    with Admin(kafka.bootstrap) as admin:
        admin.topics.create(name, partitions=3)
    values = [
        json.dumps({"id": index, "status": "open" if index % 10 == 0 else "paid", "at": {"city": "Köln"}})
        for index in range(ORDERS)
    ]
    write(kafka, name, *values)
    return name


def write(kafka: KafkaNode, topic: str, *values: str | bytes) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for index, value in enumerate(values):
        producer.produce(topic, key=f"<b>{index % 20}", value=value, headers=[("trace", f"t{index}")])
    assert producer.flush(60) == 0


def create(kafka: KafkaNode, name: str, partitions: int = 1) -> str:
    with Admin(kafka.bootstrap) as admin:
        admin.topics.create(name, partitions=partitions)
    return name


def rows(page: Page) -> list[str]:
    return page.locator("#rows tr").all_inner_texts()


def searched(page: Page) -> str:
    page.wait_for_selector("body[data-search=done]", state="attached")
    return page.locator("#status").inner_text()


def test_overview_and_events(page: Page, kafka: KafkaNode, unique_topic: Callable[[str], str]) -> None:
    page.goto("/")
    page.wait_for_selector("#state:has-text('1 of 1 up')")
    page.wait_for_selector("body[data-connected=yes]")
    page.wait_for_selector("#doctor:has-text('Looked at')")
    name = create(kafka, unique_topic("happened"))
    page.wait_for_selector(f"#events a:has-text('topic {name} is created')")
    page.goto("/events")
    page.wait_for_selector(f"#events:has-text('topic {name} is created')")


@pytest.mark.soak
def test_a_topic_is_created_changed_and_deleted(
    page: Page, kafka: KafkaNode, unique_topic: Callable[[str], str]
) -> None:
    name = unique_topic("made")
    page.goto("/topics")
    page.click("text=Create a topic")
    page.fill("#create input[name=name]", name)
    page.fill("#create input[name=partitions]", "2")
    page.fill("#create textarea", "retention.ms=3600000")
    page.click("#create button")
    page.wait_for_url(f"**/topics/{name}")
    page.wait_for_selector("table:has-text('Leader') tbody tr:nth-child(2)")

    page.click("text=Settings")
    row = page.locator("tr", has=page.locator("input[value='retention.ms']"))
    assert row.locator("input[name=value]").first.input_value() == "3600000"
    row.locator("input[name=value]").first.fill("-7")
    row.locator("text=Save").click()
    page.wait_for_selector(".flash.error")
    row.locator("input[name=value]").first.fill("7200000")
    row.locator("text=Save").click()
    page.wait_for_selector("text=retention.ms of")
    assert row.locator("input[name=value]").first.input_value() == "7200000"

    page.goto(f"/topics/{name}/produce")
    page.fill("input[name=key]", "k")
    page.fill("textarea[name=value]", '{"hello": "wörld"}')
    page.fill("textarea[name=headers]", "a=b")
    page.click("text=Send >> nth=0")
    page.wait_for_selector("text=The record is written.")
    page.goto(f"/topics/{name}/messages")
    searched(page)
    assert "wörld" in rows(page)[0]

    page.goto(f"/topics/{name}")
    page.click("text=Grow, empty or delete")
    page.fill("form[action='/do/topic.grow'] input[name=partitions]", "4")
    page.click("text=Grow >> nth=-1")
    page.wait_for_selector("text=has 4 partitions")
    page.click("text=Grow, empty or delete")
    page.fill("form[action='/do/topic.empty'] input[name=confirm]", name)
    page.click("form[action='/do/topic.empty'] button")
    page.wait_for_selector("text=are deleted")
    page.goto(f"/topics/{name}/messages")
    searched(page)
    assert rows(page) == []
    page.goto(f"/topics/{name}")
    page.click("text=Grow, empty or delete")
    page.fill("form[action='/do/topic.delete'] input[name=confirm]", name)
    page.click("form[action='/do/topic.delete'] button")
    page.wait_for_url("**/topics")
    with Admin(kafka.bootstrap) as admin:
        assert name not in {topic.name for topic in admin.topics.list()}


def test_messages_are_browsed_searched_and_exported(page: Page, orders: str) -> None:
    where = f"/topics/{orders}/messages"
    page.goto(where)
    assert searched(page) == f"50 of {ORDERS} records of 3 partitions"
    page.goto(f"{where}?text=%22open%22&limit=100")
    assert f"Complete: all {ORDERS} records of 3 partitions searched" in searched(page)
    assert len(rows(page)) == ORDERS // 10
    page.goto(f"{where}?where=id+%3E%3D+290&limit=20")
    searched(page)
    assert len(rows(page)) == 10
    page.goto(f"{where}?key=%3Cb%3E7")
    searched(page)
    assert len(rows(page)) == ORDERS // 20
    page.goto(f"{where}?header=trace%3Dt42&from=beginning")
    assert "1 found" in searched(page)
    page.goto(f"{where}?from=offset&offset=5&partition=1&limit=20")
    searched(page)
    assert rows(page)[0].split("\t")[1] == "5"
    page.goto(f"{where}?from=time&since=2020-01-01T00:00:00Z&limit=100")
    searched(page)
    assert len(rows(page)) == 100
    page.goto(f"{where}?text=%22open%22")
    with page.expect_download() as waiting:
        page.click("a[href*='format=jsonl']")
    lines = [json.loads(line) for line in waiting.value.path().read_text().splitlines()]
    assert len(lines) == ORDERS // 10
    page.goto(f"{where}?from=beginning")
    searched(page)
    page.click("a.record >> nth=0")
    page.wait_for_selector("dialog[open]")
    page.click("text=Address of this record")
    page.wait_for_url("**/messages/*/*")
    assert '"city": "Köln"' in page.locator("main").inner_text()


def test_new_records_appear_while_a_topic_is_followed(page: Page, kafka: KafkaNode, orders: str) -> None:
    topic = f"{orders}-followed"
    create(kafka, topic, 2)
    page.goto(f"/topics/{topic}/messages?follow=1&text=follow-me")
    page.wait_for_selector("#status:has-text('following: ')")
    write(kafka, topic, *(f"follow-me {index}" for index in range(5)), "not me")
    page.wait_for_selector("#rows tr:nth-child(5)")
    page.click("#cancel")
    assert "Stopped" in searched(page)


@pytest.mark.soak
def test_a_file_is_sent(page: Page, kafka: KafkaNode, unique_topic: Callable[[str], str], tmp_path: Path) -> None:
    name = create(kafka, unique_topic("files"), 3)
    file = tmp_path / "records.jsonl"
    file.write_text("".join(f'{{"id": {index}}}\n' for index in range(1000)))
    page.goto(f"/topics/{name}/produce")
    page.set_input_files("form[data-upload] input[type=file]", str(file))
    page.click("text=Look at it")
    page.click("text=Send 1,000 records")
    page.wait_for_selector("form[data-state=done]")
    written = read_table(kafka.bootstrap, name, value="string", columns=["value"])["value"].to_pylist()
    assert sorted(json.loads(value)["id"] for value in written) == list(range(1000))


@pytest.mark.parametrize(
    ("protocol", "kind"),
    [pytest.param("classic", "classic", marks=pytest.mark.soak), ("consumer", "consumer (KIP-848)")],
)
def test_a_group_with_members_and_without(
    page: Page, kafka: KafkaNode, orders: str, unique_topic: Callable[[str], str], protocol: str, kind: str
) -> None:
    group = unique_topic(f"group-{protocol}")
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "group.protocol": protocol, "client.id": "reader", "enable.auto.commit": False})
    consumer.subscribe([orders])
    try:
        seen = 0

        def has_read() -> bool:
            nonlocal seen
            seen += consumer.poll(0.2) is not None
            return seen == ORDERS

        wait_until(has_read, "all records are read")
        consumer.commit(asynchronous=False)
        page.goto("/groups")
        row = page.locator(f"tr:has(a.name:text-is('{group}'))")
        row.wait_for()
        assert kind in row.inner_text()
        page.click(f"a.name:text-is('{group}')")
        page.wait_for_selector("#state:has-text('Stable')")
        page.wait_for_selector("table:has-text('Client') tbody tr:has-text('reader')")
        page.click("text=Preview")
        page.wait_for_selector("text=The group has members")
    finally:
        close(consumer)
    page.wait_for_selector("text=The group has no members now")
    page.goto(f"/group?name={group}&to=shift&value=-4")
    page.wait_for_selector("text=Nothing is changed yet")
    assert page.locator("#preview td:text-is('-4')").count() == 3
    page.click("text=Reset these offsets")
    page.wait_for_selector("text=3 offsets of group")
    page.wait_for_selector("dd:text-is('12')")
    page.click("text=Delete the group")
    page.fill("input[name=confirm]", group)
    page.click("form[action='/do/group.delete'] button")
    page.wait_for_url("**/groups")
    with Admin(kafka.bootstrap) as admin:
        assert admin.groups.find(group) is None


@pytest.mark.soak
def test_a_share_group(page: Page, kafka: KafkaNode, orders: str, unique_topic: Callable[[str], str]) -> None:
    group = unique_topic("share")
    with Admin(kafka.bootstrap) as admin:
        admin.share_groups.reset(group, "earliest", topics=[orders])
        with ShareConsumer(kafka.bootstrap, orders, group=group, explicit=True, max_records=5) as consumer:
            for record in islice(consumer, 5):
                consumer.accept(record)
            consumer.flush()
            page.goto("/groups")
            row = page.locator(f"tr:has(a.name:text-is('{group}'))")
            row.wait_for()
            assert "share (KIP-932)" in row.inner_text()
            page.click(f"a.name:text-is('{group}')")
            page.wait_for_selector("table:has-text('Client') tbody tr")
            assert page.locator("th:has-text('Start')").count() == 1
        page.wait_for_selector("text=The group has no members now")
        page.goto(f"/group?name={group}&to=latest")
        page.click("text=Reset these offsets")
        page.wait_for_selector("text=3 offsets of group")
        page.click("text=Delete the group")
        page.fill("input[name=confirm]", group)
        page.click("form[action='/do/group.delete'] button")
        page.wait_for_url("**/groups")
        assert group not in [each.group_id for each in admin.share_groups.list()]


def test_transactions_open_and_hanging(page: Page, kafka: KafkaNode, unique_topic: Callable[[str], str]) -> None:
    topic = create(kafka, unique_topic("tx"))
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, value="x")
    producer.flush()
    page.goto("/transactions")
    assert "Ongoing" in page.locator(f"tr:has-text('{topic}')").inner_text()
    producer.commit_transaction()

    hanging = create(kafka, unique_topic("hanging"))
    with Connection("127.0.0.1", kafka.port) as connection:
        forgotten = batch(
            "a",
            timestamp=now_ms() - HOUR_MS,
            producer_id=77_777,
            producer_epoch=3,
            base_sequence=0,
            transactional=True,
        )
        request = produce_request(hanging, forgotten)
        request.transactional_id = "forgotten"

        def is_written() -> bool:
            answer = connection.request(request, ProduceResponse, newest=UNVERIFIED_PRODUCE)
            return only_partition(answer).error_code == 0

        wait_until(is_written, "the broker knows the topic")
    page.goto("/transactions")
    page.click(f"#hanging tr:has-text('{hanging}') >> text=Abort")
    page.wait_for_selector("text=is aborted")
    page.wait_for_selector("text=No transaction hangs")


def test_users_acls_and_quotas(page: Page, kafka: KafkaNode) -> None:
    page.goto("/security")
    page.click("text=Create a user")
    page.fill("#users input[name=name]", "ada <b>")
    page.fill("#users input[name=password]", "secret-word")
    page.click("#users button:has-text('Set')")
    page.wait_for_selector("text=The password of ada <b> is set.")
    page.click("tr:has-text('ada <b>') >> text=Remove SCRAM-SHA-512")
    page.wait_for_selector("text=is removed")
    page.click("text=Add an ACL")
    page.fill("#acls input[name=principal]", "User:grace <b>")
    page.fill("#acls input[name=resource]", "pay")
    page.select_option("#acls select[name=pattern]", "PREFIXED")
    page.click("#acls button:has-text('Add')")
    page.wait_for_selector("text=has a new ACL")
    row = page.locator("#acls tr:has-text('grace <b>')")
    assert "topic pay" in row.inner_text()
    assert "prefixed" in row.inner_text()
    row.locator("text=Delete").click()
    page.wait_for_selector("text=1 ACL of User:grace <b> is deleted")
    assert row.count() == 0
    page.click("text=Set a quota")
    page.fill("#quotas input[name=entity]", "ada")
    page.fill("#quotas input[name=value]", "1048576")
    page.click("#quotas button:has-text('Set')")
    page.wait_for_selector("text=1.0 MiB/s")
    page.click("text=Remove producer_byte_rate")
    page.wait_for_selector("text=There are no quotas.")


@pytest.mark.soak
def test_a_user_who_signs_in_sees_what_the_acls_allow(
    browser: Browser, kafka: KafkaNode, ports: tuple[int, int, int], unique_topic: Callable[[str], str], tmp_path: Path
) -> None:
    shared, secret = create(kafka, unique_topic("shared")), create(kafka, unique_topic("secret"))
    write(kafka, shared, "for bob")
    with Admin(kafka.bootstrap) as admin:
        admin.users.set_password("bob", PASSWORD)
        admin.acls.create([Acl(principal="User:bob", operation="READ", resource_type="TOPIC", resource=shared)])
    with running_console(tmp_path, f"127.0.0.1:{ports[1]}", "--sign-in") as console:
        context = browser.new_context(base_url=console.address)
        page = context.new_page()
        for password in ("wrong", PASSWORD):
            page.goto("/")
            page.wait_for_url("**/sign-in")
            page.fill("input[name=user]", "bob")
            page.fill("input[name=password]", password)
            page.click("button:has-text('Sign in')")
            if password == "wrong":
                assert "refused this user, password or token" in page.locator(".flash.error").inner_text()
        page.wait_for_selector("text=Sign out")
        page.goto("/topics")
        page.wait_for_selector(f"a:has-text('{shared}')")
        assert page.locator(f"a:has-text('{secret}')").count() == 0
        page.goto(f"/topics/{shared}/messages")
        searched(page)
        assert "for bob" in rows(page)[0]
        page.goto(f"/topics/{shared}/produce")
        page.fill("textarea[name=value]", "from bob")
        page.click("text=Send >> nth=0")
        assert "AUTHORIZATION_FAILED" in page.locator(".flash.error").inner_text()
        for where in ("/groups", "/transactions", "/pipelines", "/reports"):
            assert page.goto(where).status == 200, where  # type: ignore[union-attr]
        context.close()


def test_internal_topics_are_readable(page: Page, kafka: KafkaNode, orders: str) -> None:
    with Admin(kafka.bootstrap) as admin:
        admin.groups.alter_offsets("looked-at", {TopicPartition(orders, 0): 7})
    Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "looked-at"}).init_transactions()
    page.goto("/topics/__consumer_offsets/messages?text=looked-at")
    searched(page)
    assert any("looked-at" in row and orders in row for row in rows(page))
    page.goto("/topics/__transaction_state/messages?text=looked-at")
    searched(page)
    assert any("looked-at" in row for row in rows(page))


@pytest.mark.soak
def test_dead_letters_are_redriven_once(page: Page, kafka: KafkaNode, unique_topic: Callable[[str], str]) -> None:
    source = create(kafka, unique_topic("source"), 2)
    topic = create(kafka, f"{source}.dead-letters", 2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for index in range(100):
        about = {"reason": "not JSON", "pipeline": "p", "topic": source, "partition": "0", "offset": str(index)}
        headers: list[tuple[str, str | bytes | None]] = [(f"dead-letter.{key}", text) for key, text in about.items()]
        producer.produce(topic, key=f"k{index}", value=f"v{index}", headers=headers)
    assert producer.flush(60) == 0
    page.goto("/pipelines")
    page.click(f"a:has-text('{topic}')")
    page.wait_for_selector("text=100 letters to redrive")
    page.click("text=Redrive all")
    page.wait_for_selector("text=100 letters of")
    page.wait_for_selector("text=0 letters to redrive")
    arrived = read_table(kafka.bootstrap, source, key="string", columns=["key"])["key"].to_pylist()
    assert Counter(arrived) == Counter(f"k{index}" for index in range(100))


def test_a_report(page: Page, orders: str) -> None:
    page.goto(f"/reports?topic={orders}&value=id&by=status&how=max")
    page.wait_for_selector("figure.chart path.line", state="attached")  # of one minute: a line without a width
    assert page.locator("figure.chart path.line").count() == 2


def test_pages_without_anything_say_what_to_do(page: Page) -> None:
    page.goto("/pipelines")
    page.wait_for_selector("text=penstock pipeline run")
    assert page.locator("header > nav >> text=Schemas").count() == 0
    page.set_viewport_size({"width": 390, "height": 800})
    for where in ("/", "/topics", "/groups", "/pipelines", "/reports", "/transactions", "/security", "/events"):
        page.goto(where)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, where


@pytest.mark.soak
def test_a_killed_broker_is_reported_and_its_return(page: Page, kafka: KafkaNode) -> None:
    page.goto("/")
    page.wait_for_selector("body[data-connected=yes]")
    kafka.kill()
    try:
        page.wait_for_selector("#trouble .error")
        assert "does not answer" in page.locator("#trouble").inner_text()
    finally:
        kafka.start()
        kafka.wait_ready()
    page.wait_for_selector("#trouble .error", state="detached")
    assert "1 of 1 up" in page.locator("#state").inner_text()
