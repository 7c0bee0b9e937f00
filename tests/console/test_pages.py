"""Pages in a real browser, against a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock import ShareConsumer
from penstock.arrow import read_table
from penstock.client.wire.admin import Admin
from penstock.model.ids import TopicPartition
from penstock.testing.nodes import RunningNode

pytest.importorskip("starlette", reason="the extra `console` is not installed")
if TYPE_CHECKING:
    from playwright.sync_api import Page

    from console_process import RunningConsole

ORDERS = 300


@pytest.fixture(scope="module")
def orders(broker: RunningNode, unique_topic: Callable[[str], str]) -> str:
    """Three partitions; every tenth order is open, and one is strange."""
    from confluent_kafka import Producer

    name = unique_topic("orders")
    with Admin(broker.bootstrap) as admin:
        admin.topics.create(name, partitions=3)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for index in range(ORDERS):
        value = {"id": index, "status": "open" if index % 10 == 0 else "paid", "customer": {"city": "Köln"}}
        producer.produce(name, key=f"customer-{index % 20}", value=json.dumps(value), headers=[("trace", f"t{index}")])
    producer.flush()
    return name


@pytest.fixture(scope="module")
def odd(broker: RunningNode, unique_topic: Callable[[str], str]) -> str:
    """Records that try to be something else."""
    from confluent_kafka import Producer

    name = unique_topic("odd")
    with Admin(broker.bootstrap) as admin:
        admin.topics.create(name, partitions=1, configs={"max.message.bytes": "12000000"})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 12_000_000})
    evil = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    producer.produce(name, key=evil, value=evil, headers=[(evil, evil.encode())])
    producer.produce(name, key="\x1b[31mred", value=b"\xff\xfe\x80")
    producer.produce(name, key="deep", value="[" * 1000 + "]" * 1000)
    producer.produce(name, key=None, value=None)
    producer.produce(name, key="ten megabytes", value=json.dumps({"x": "y" * 10_000_000}))
    producer.flush()
    return name


def rows(page: Page) -> list[str]:
    return page.locator("#rows tr").all_inner_texts()


def searched(page: Page) -> str:
    """The text at the end of a search."""
    page.wait_for_selector("body[data-search=done]", state="attached")
    return page.locator("#status").inner_text()


def test_a_file_is_looked_at_and_sent(
    page: Page, console: RunningConsole, broker: RunningNode, unique_topic: Callable[[str], str], tmp_path: Path
) -> None:
    """Of more than one piece; lines that are wrong are named, and left out."""
    name = unique_topic("files")
    with Admin(broker.bootstrap) as admin:
        admin.topics.create(name, partitions=3)
    lines = [json.dumps({"id": index, "who": f"<b>{index % 7}", "text": "x" * 200}) for index in range(12_000)]
    lines[2] = '{"id": 2'
    file = tmp_path / "records.jsonl"
    file.write_text("\n".join(lines) + "\n\n")
    assert file.stat().st_size > 2 * 1024 * 1024
    page.goto(f"/topics/{name}/produce")
    page.set_input_files("form[data-upload] input[type=file]", str(file))
    page.fill("form[data-upload] input[name=key]", "who")
    page.click("text=Look at it")
    page.wait_for_selector("form[data-state=checked]")
    shown = page.locator("form[data-upload]").inner_text()
    assert "12,001 lines, 11,999 records. 1 lines are wrong and left out." in shown
    assert "line 3: it is not JSON: Expecting ',' delimiter, at character 9" in shown
    assert "<b>0" in page.locator(".preview tbody tr >> nth=0").inner_text()
    page.click("text=Send 11,999 records")
    page.wait_for_selector("form[data-state=done]")
    assert "11,999 records are written" in page.locator("form[data-upload]").inner_text()
    written = read_table(broker.bootstrap, name, key="string", value="string", columns=["key", "value"])
    ids = sorted(json.loads(value)["id"] for value in written["value"].to_pylist())
    assert ids == [index for index in range(12_000) if index != 2]
    assert set(written["key"].to_pylist()) == {f"<b>{index}" for index in range(7)}
    assert any('"file.produce"' in line and '"records"' in line for line in console.audit_lines())
    page.fill("form[data-upload] input[name=key]", "nobody")
    page.click("text=Look at it")
    page.wait_for_selector("text=12,000 lines are wrong")
    assert page.locator(".errors li").count() == 100


def test_the_overview_shows_the_broker_and_stays_live(page: Page) -> None:
    page.goto("/")
    page.wait_for_selector("#state:has-text('1 of 1 up')")
    page.wait_for_selector("body[data-connected=yes]")
    page.wait_for_selector("#age:has-text('sampled')")
    page.wait_for_selector("#doctor:has-text('Looked at')")


def test_events_appear_while_the_page_is_open(
    page: Page, broker: RunningNode, unique_topic: Callable[[str], str]
) -> None:
    name = unique_topic("happened")
    page.goto("/")
    page.wait_for_selector("body[data-connected=yes]")
    with Admin(broker.bootstrap) as admin:
        admin.topics.create(name, partitions=1)
        page.wait_for_selector(f"#events a:has-text('topic {name} is created')")
        admin.topics.delete(name)
    page.goto("/events")
    page.wait_for_selector(f"#events:has-text('topic {name} is deleted')")


def test_a_topic_is_created_changed_and_deleted(
    page: Page, console: RunningConsole, broker: RunningNode, unique_topic: Callable[[str], str]
) -> None:
    name = unique_topic("made")
    page.goto("/topics")
    page.click("text=Create a topic")
    page.fill("#create input[name=name]", name)
    page.fill("#create input[name=partitions]", "2")
    page.fill("#create textarea", "retention.ms=3600000")
    page.click("#create button")
    page.wait_for_url(f"**/topics/{name}")
    assert f"Topic {name} is created." in page.locator(".flash").inner_text()

    page.click("text=Settings")
    assert page.locator("tr", has_text="retention.ms").locator("input[name=value]").first.input_value() == "3600000"
    setting = page.locator("form", has=page.locator("input[value='retention.ms']"))
    setting.locator("input[name=value]").fill("nonsense")
    setting.locator("text=Save").click()
    assert "nonsense" in page.locator(".flash.error").inner_text()
    setting.locator("input[name=value]").fill("7200000")
    setting.locator("text=Save").click()
    page.wait_for_selector("text=retention.ms of")

    page.goto(f"/topics/{name}/produce")
    page.fill("input[name=key]", "k")
    page.fill("textarea[name=value]", '{"hello": "wörld"}')
    page.fill("textarea[name=headers]", "a=b")
    page.click("text=Send")
    assert "is written" in page.locator(".flash").inner_text()
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
    page.click("text=Grow, empty or delete")
    delete = page.locator("form[action='/do/topic.delete'] button")
    assert delete.is_disabled()
    page.fill("form[action='/do/topic.delete'] input[name=confirm]", name)
    delete.click()
    page.wait_for_url("**/topics")
    with Admin(broker.bootstrap) as admin:
        assert name not in {topic.name for topic in admin.topics.list()}
    done = [
        (line["action"], line["result"][:2])
        for line in map(json.loads, console.audit_lines())
        if line["subject"] == name
    ]
    assert done == [
        ("topic.create", "ok"),
        ("topic.set", "re"),
        ("topic.set", "ok"),
        ("record.produce", "ok"),
        ("topic.grow", "ok"),
        ("topic.empty", "ok"),
        ("topic.delete", "ok"),
    ]


def test_messages_are_browsed_and_searched_to_the_end(page: Page, orders: str) -> None:
    where = f"/topics/{orders}/messages"
    page.goto(where)
    assert searched(page) == f"50 of {ORDERS} records of 3 partitions"
    assert len(rows(page)) == 50
    page.goto(f"{where}?text=%22open%22&limit=100")
    assert f"Complete: all {ORDERS} records of 3 partitions searched" in searched(page)
    assert len(rows(page)) == ORDERS // 10
    page.goto(f"{where}?where=id+%3E%3D+290&limit=20")
    assert "Complete" in searched(page)
    assert len(rows(page)) == 10
    page.goto(f"{where}?where=status+%3D+paid&limit=20")
    assert "Not complete: the newest 20" in searched(page)
    page.goto(f"{where}?key=customer-7")
    assert "partition" in searched(page)
    assert len(rows(page)) == ORDERS // 20
    assert len({row.split("\t")[0] for row in rows(page)}) == 1  # librdkafka's, and not that of Java's clients
    page.goto(f"{where}?key=customer-7&everywhere=1&from=beginning")
    assert f"all {ORDERS} records of 3 partitions" in searched(page)
    assert len(rows(page)) == ORDERS // 20
    page.goto(f"{where}?header=trace%3Dt42&from=beginning")
    assert "1 found" in searched(page)
    page.goto(f"{where}?from=offset&offset=5&partition=1&limit=20")
    searched(page)
    assert rows(page)[0].split("\t")[1] == "5"
    page.goto(f"{where}?text=nobody-has-this")
    assert "0 found" in searched(page)
    assert "No record matches" in page.locator("#nothing").inner_text()
    page.goto(f"{where}?where=%3D3")
    assert "is not a path" in page.locator("main .flash.error").inner_text()


def test_a_record_has_an_address_and_is_copied(page: Page, orders: str) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"/topics/{orders}/messages?key=customer-3&from=beginning")
    searched(page)
    page.click("a.record >> nth=0")
    page.wait_for_selector("dialog[open]")
    assert '"city": "Köln"' in page.locator("dialog").inner_text()
    page.click("text=Copy as a command")
    assert page.evaluate("navigator.clipboard.readText()").startswith(f"penstock consume {orders} --partition")
    page.click("text=Address of this record")
    page.wait_for_url("**/messages/*/*")
    assert "trace" in page.locator("main").inner_text()
    page.reload()
    assert '"city": "Köln"' in page.locator("main").inner_text()


def test_new_records_appear_while_a_topic_is_followed(page: Page, broker: RunningNode, orders: str) -> None:
    from confluent_kafka import Producer

    page.goto(f"/topics/{orders}/messages?follow=1&text=follow-me")
    page.wait_for_selector("#status:has-text('following: ')")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for index in range(5):
        producer.produce(orders, key="x", value=f"follow-me {index}")
        producer.produce(orders, key="x", value="not me")
    producer.flush()
    page.wait_for_selector("#rows tr:nth-child(5)")
    assert "follow-me 4" in rows(page)[0]
    page.click("#cancel")
    assert "Stopped" in searched(page)


def test_odd_records_are_shown_and_never_run(page: Page, odd: str) -> None:
    page.goto(f"/topics/{odd}/messages")
    searched(page)
    shown = "\n".join(rows(page))
    assert "<script>document.title" in shown
    assert "\\x1b[31mred" in shown
    assert "ff fe 80" in shown
    for offset in range(5):
        page.goto(f"/topics/{odd}/messages/0/{offset}")
        page.wait_for_selector("main pre, main .quiet")
        assert page.title().endswith("Penstock")
    assert "Cut: this is the beginning of 9.5 MiB" in page.locator("main").inner_text()
    page.goto(f"/topics/{odd}/messages/0/77")
    assert "77" in page.locator("main .empty").inner_text()


def test_records_are_exported(page: Page, orders: str) -> None:
    import pyarrow.parquet as pq

    for kind in ("csv", "jsonl", "parquet"):
        with page.expect_download() as waiting:
            page.goto(f"/topics/{orders}/messages?text=%22open%22&limit=20")
            page.click(f"a[href*='format={kind}']")
        path = waiting.value.path()
        if kind == "parquet":
            assert pq.read_table(path).num_rows == ORDERS // 10
        elif kind == "jsonl":
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            assert len(lines) == ORDERS // 10
            assert all('"open"' in line["value"] for line in lines)
        else:
            assert len(path.read_text().splitlines()) == ORDERS // 10 + 1


def test_offsets_of_a_group_are_reset_after_a_preview(
    page: Page, broker: RunningNode, orders: str, unique_topic: Callable[[str], str]
) -> None:
    group = f"{unique_topic('group')} <b>/?&"
    with Admin(broker.bootstrap) as admin:
        admin.groups.alter_offsets(group, {TopicPartition(orders, index): 10 for index in range(3)})
    page.goto("/groups")
    page.wait_for_selector(f"text={group.split()[0]}")
    page.click(f"a.name:has-text('{group.split()[0]}')")
    page.wait_for_selector("text=Reset offsets")
    assert group in page.locator("h1").inner_text()
    page.select_option("select[name=to]", "shift")
    page.fill("input[name=value]", "-4")
    page.click("text=Preview")
    page.wait_for_selector("text=Nothing is changed yet")
    assert page.locator("#preview td:text-is('-4')").count() == 3
    with Admin(broker.bootstrap) as admin:
        assert {each.offset for each in admin.groups.offsets(group).values()} == {10}
    page.click("text=Reset these offsets")
    page.wait_for_selector("text=3 offsets of group")
    with Admin(broker.bootstrap) as admin:
        assert {each.offset for each in admin.groups.offsets(group).values()} == {6}
    page.click("text=Delete the group")
    page.fill("input[name=confirm]", group)
    page.click("form[action='/do/group.delete'] button")
    page.wait_for_url("**/groups")
    with Admin(broker.bootstrap) as admin:
        assert admin.groups.find(group) is None


def test_a_share_group(page: Page, broker: RunningNode, orders: str, unique_topic: Callable[[str], str]) -> None:
    group = unique_topic("share")
    with Admin(broker.bootstrap) as admin:
        admin.share_groups.reset(group, "earliest", topics=[orders])
        with (
            ShareConsumer(broker.bootstrap, orders, group=group, explicit=True, max_records=5) as consumer,
            ShareConsumer(broker.bootstrap, orders, group=group),
        ):
            for record in islice(consumer, 5):
                consumer.accept(record)
            consumer.flush()
            page.goto("/groups")
            row = page.locator(f"tr:has(a.name:text-is('{group}'))")
            row.wait_for()
            assert "share (KIP-932)" in row.inner_text()
            page.click(f"a.name:text-is('{group}')")
            # What another test has written to the topic is there, too.
            lag = sum(each.lag or 0 for each in admin.share_groups.offsets(group))
            assert lag >= ORDERS - 5
            page.wait_for_selector(f"dd:has-text('{lag:,}')")
            page.wait_for_selector("table:has-text('Client') tbody tr:nth-child(2)")
            assert page.locator("th:has-text('Start')").count() == 1
            assert page.locator("text=Lag over time").count() == 1
            page.click("text=Preview")
            page.wait_for_selector("text=The group has members. Stop them first")
        page.wait_for_selector("text=The group has no members now")
        page.goto(f"/group?name={group}&to=latest")
        page.click("text=Reset these offsets")
        page.wait_for_selector("text=3 offsets of group")
        assert sum(each.lag or 0 for each in admin.share_groups.offsets(group)) == 0
        page.click("text=Delete the group")
        page.fill("input[name=confirm]", group)
        page.click("form[action='/do/group.delete'] button")
        page.wait_for_url("**/groups")
        assert group not in [each.group_id for each in admin.share_groups.list()]


def test_keys_and_narrow_screens(page: Page) -> None:
    page.goto("/")
    page.keyboard.type("gt")
    page.wait_for_url("**/topics")
    page.keyboard.press("/")
    page.keyboard.type("nothing-has-this-name")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=nothing-has-this-name**")
    page.wait_for_selector("text=No topic has")
    page.set_viewport_size({"width": 390, "height": 800})
    for where in ("/", "/topics", "/groups"):
        page.goto(where)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, where
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_a_killed_broker_is_reported_and_its_return(page: Page, broker: RunningNode) -> None:
    page.goto("/")
    page.wait_for_selector("body[data-connected=yes]")
    broker.kill()
    try:
        page.wait_for_selector("#trouble .error")
        assert "does not answer" in page.locator("#trouble").inner_text()
    finally:
        broker.start()
    page.wait_for_selector("#trouble .error", state="detached")
    assert "1 of 1 up" in page.locator("#state").inner_text()
