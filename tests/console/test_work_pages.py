"""Pages about what runs on a cluster, in a real browser: dead letters, pipelines, reports, transactions, schemas."""

from __future__ import annotations

import base64
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from console_process import running_console
from penstock.arrow import read_table
from penstock.client.wire.admin import Admin
from penstock.testing.nodes import RunningNode

pytest.importorskip("starlette", reason="the extra `console` is not installed")

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LETTERS = 1000


def test_a_thousand_dead_letters_are_redriven_each_once(
    page: Page, broker: RunningNode, unique_topic: Callable[[str], str]
) -> None:
    from confluent_kafka import Producer

    source = unique_topic("source")
    topic = f"{source}.dead-letters"
    with Admin(broker.bootstrap) as admin:
        admin.topics.create(source, partitions=3)
        admin.topics.create(topic, partitions=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for index in range(LETTERS):
        headers = {"reason": "not JSON" if index % 4 else "negative", "pipeline": "p", "topic": source}
        headers |= {"partition": str(index % 3), "offset": str(index)}
        producer.produce(
            topic,
            key=f"k{index}",
            value=f"v{index}",
            headers=[(f"dead-letter.{name}", text) for name, text in headers.items()],
        )
    producer.flush()

    page.goto("/pipelines")
    page.wait_for_selector(f"a:has-text('{topic}')")
    page.click(f"a:has-text('{topic}')")
    page.wait_for_selector("text=1,000 letters to redrive")
    page.click("a:has-text('negative')")
    page.click("details.finding summary >> nth=0", position={"x": 5, "y": 8})
    page.click("text=Redrive this one >> nth=0")
    page.wait_for_selector("text=1 letters of")
    page.goto(f"/dead-letters?topic={topic}")
    page.click("text=Redrive 750")
    page.wait_for_selector("text=750 letters of")
    page.click("text=Redrive all")
    page.wait_for_selector("text=249 letters of")
    page.wait_for_selector("text=0 letters to redrive")
    arrived = read_table(broker.bootstrap, source, key="string", columns=["key"])["key"].to_pylist()
    assert Counter(arrived) == Counter(f"k{index}" for index in range(LETTERS))


def test_a_dead_letter_is_edited_and_redriven_once(
    page: Page, broker: RunningNode, unique_topic: Callable[[str], str]
) -> None:
    from confluent_kafka import Producer

    source = unique_topic("broken")
    topic = f"{source}.dead-letters"
    with Admin(broker.bootstrap) as admin:
        admin.topics.create(source, partitions=1)
        admin.topics.create(topic, partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    headers = {"reason": "no <b>total", "pipeline": "p", "topic": source, "partition": "0", "offset": "3"}
    for index in range(2):
        producer.produce(
            topic,
            key=f"k{index}",
            value=f'{{"id": {index}, "text": "<b>Köln"}}',
            headers=[("trace", b"t"), *((f"dead-letter.{name}", text.encode()) for name, text in headers.items())],
        )
    producer.flush()

    page.goto(f"/dead-letters?topic={topic}&reason=total")
    page.click("details.finding:has-text('k1') summary", position={"x": 5, "y": 8})
    page.click("details[open] >> text=Edit it first")
    box = page.locator("textarea[name=value]")
    assert json.loads(box.input_value()) == {"id": 1, "text": "<b>Köln"}
    box.fill('{"id": 1, "total": }')
    page.click("text=Redrive the edited record")
    assert "not JSON: Expecting value, in line 1, column 20; nothing was sent" in page.locator(".flash").inner_text()
    assert box.input_value() == '{"id": 1, "total": }', "what was typed is not lost"
    edit = page.url
    box.fill('{"id": 1,\n "total": 7}')
    page.click("text=Redrive the edited record")
    page.wait_for_selector("text=Letter 0:1 of")
    page.wait_for_selector("text=1 letter to redrive")
    page.goto(edit)
    assert "It was redriven before." in page.locator("main").inner_text()
    page.click(f"h1 a:has-text('{topic}')")
    page.click("button:has-text('Redrive 1') >> nth=0")
    page.wait_for_selector("text=0 letters to redrive")
    columns = ["key", "value", "headers"]
    arrived = read_table(broker.bootstrap, source, key="string", value="string", columns=columns).to_pylist()
    assert [(row["key"], json.loads(row["value"])) for row in arrived] == [
        ("k1", {"id": 1, "total": 7}),
        ("k0", {"id": 0, "text": "<b>Köln"}),
    ]
    told = [{header["key"]: header["value"] for header in row["headers"]} for row in arrived]
    assert [(each["trace"], each.get("replayed.edited")) for each in told] == [(b"t", b"true"), (b"t", None)]
    kept = read_table(broker.bootstrap, topic, value="string")["value"].to_pylist()
    assert [json.loads(each)["id"] for each in kept] == [0, 1]


def test_a_pipeline_shows_its_queries(page: Page, broker: RunningNode) -> None:
    from confluent_kafka import Producer

    with Admin(broker.bootstrap) as admin:
        if "__pipelines" not in {topic.name for topic in admin.topics.list(internal=True)}:
            admin.topics.create("__pipelines", partitions=1)
    query = {
        "name": "totals",
        "state": "running",
        "lag": 12,
        "latency_ms": 450,
        "rows_out": {"sums": 99},
        "error": "<b>boom",
    }
    report = {
        "version": 1,
        "name": "shop <i>",
        "run_id": "r",
        "state": "running",
        "started_ms": 1,
        "heartbeat_ms": 2**50,
    }
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("__pipelines", key="pipeline/shop <i>", value=json.dumps({**report, "queries": [query]}))
    producer.produce("__pipelines", key="pipeline/broken", value="not a report")
    producer.flush()
    page.goto("/pipelines")
    page.click("a:has-text('shop <i>')")
    shown = page.locator("#state").inner_text()
    assert "totals" in shown
    assert "sums 99" in shown
    assert "<b>boom" in shown


def test_a_report_draws_fields_over_time(page: Page, broker: RunningNode, unique_topic: Callable[[str], str]) -> None:
    from confluent_kafka import Producer

    topic = unique_topic("windows")
    with Admin(broker.bootstrap) as admin:
        admin.topics.create(topic, partitions=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for index in range(200):
        at = f"2026-05-01T12:{index // 60:02d}:{index % 60:02d}Z"
        producer.produce(
            topic, value=json.dumps({"window": {"start": at}, "city": ["Köln", "Bonn"][index % 2], "total": index})
        )
    producer.produce(topic, value="not JSON")
    producer.flush()
    page.goto(f"/reports?topic={topic}&value=total&by=city&at=window.start&how=max")
    page.wait_for_selector("figure.chart path.line")
    assert page.locator("figure.chart path.line").count() == 2
    assert "Köln" in page.locator(".legend").inner_text()
    assert page.locator("select[name=value]").input_value() == "total"
    assert "2026-05-01T12:03" in page.locator("#report table").inner_text()
    page.goto("/reports?topic=nothing-like-that")
    assert "There is no topic" in page.locator("main").inner_text()


def test_a_board_draws_several_reports_and_stays_live(
    browser: Browser, broker: RunningNode, tmp_path: Path, unique_topic: Callable[[str], str]
) -> None:
    from confluent_kafka import Producer

    topic = unique_topic("places")
    with Admin(broker.bootstrap) as admin:
        admin.topics.create(topic, partitions=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})

    def move(*trucks: str) -> None:
        for index, truck in enumerate(trucks):
            place = {"truck": truck, "latitude": 50 + index, "longitude": 8 + index, "speed": 10 * index}
            producer.produce(topic, key=truck, value=json.dumps(place))
        producer.flush()

    move("ada <b>", "grace")
    board = tmp_path / "trucks.toml"
    board.write_text(
        f"title = 'My trucks'\n[[panel]]\ntitle = 'Map'\ntopic = '{topic}'\nkind = 'map'\nby = 'truck'\n"
        f"value = 'speed'\n[[panel]]\ntopic = '{topic}'\nkind = 'bars'\nby = 'truck'\n"
        "[[panel]]\ntopic = 'nothing-like-that'\n"
    )
    with running_console(tmp_path, broker.bootstrap, "--board", str(board)) as console:
        context = browser.new_context(base_url=console.address)
        page = context.new_page()
        page.goto("/reports")
        page.click("a:has-text('My trucks')")
        page.wait_for_url("**/reports/trucks")
        page.wait_for_selector(".map .thing")
        assert page.locator(".map .thing text").all_text_contents() == ["ada <b>", "grace"]
        assert page.locator(".bars .name").count() == 2
        assert "There is no topic" in page.locator("#board").inner_text()
        move("linus")
        page.wait_for_selector(".map .thing:has-text('linus')")
        page.click(".panel .more >> nth=0")
        page.wait_for_selector("#report .map .thing")
        assert page.locator("select[name=latitude]").input_value() == "latitude"
        page.goto("/reports/others")
        assert "There is no board" in page.locator("main").inner_text()
        context.close()


def test_transactions_users_and_quotas(page: Page, broker: RunningNode, unique_topic: Callable[[str], str]) -> None:
    from confluent_kafka import Producer

    topic = unique_topic("tx")
    with Admin(broker.bootstrap) as admin:
        admin.topics.create(topic, partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, value="x")
    producer.flush()
    page.goto("/transactions")
    assert "Ongoing" in page.locator(f"tr:has-text('{topic}')").inner_text()
    producer.commit_transaction()

    page.goto("/security")
    page.click("text=Create a user")
    page.fill("#users input[name=name]", "ada <b>")
    page.fill("#users input[name=password]", "secret-word")
    page.click("#users button:has-text('Set')")
    page.wait_for_selector("text=The password of ada <b> is set.")
    page.click("text=Remove SCRAM-SHA-512")
    page.wait_for_selector("text=is removed")
    page.click("text=Set a quota")
    page.fill("#quotas input[name=entity]", "ada")
    page.fill("#quotas input[name=value]", "1048576")
    page.click("#quotas button:has-text('Set')")
    page.wait_for_selector("text=1.0 MiB/s")
    page.click("text=Remove producer_byte_rate")
    page.wait_for_selector("text=There are no quotas.")
    assert "No Authorizer" in page.locator("#acls").inner_text()


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """As much of a schema registry as a console asks for."""
    from google.protobuf import descriptor_pb2

    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "city", "type": "string"}]})
    file = descriptor_pb2.FileDescriptorProto(name="towns.proto", syntax="proto3", package="atlas")
    message = file.message_type.add(name="Unused")
    message = file.message_type.add(name="Town")
    message.field.add(name="name", number=1, type=9, label=1)
    message.field.add(name="people", number=2, type=3, label=1)
    serialized = {"schema": base64.b64encode(file.SerializeToString()).decode(), "schemaType": "PROTOBUF"}
    answers = {
        "/schemas/ids/7": {"schema": schema},
        "/schemas/ids/8": serialized,
        "/subjects": ["cities-value"],
        "/subjects/cities-value/versions": [1],
        "/subjects/cities-value/versions/1": {"version": 1, "id": 7, "schema": schema},
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path.partition("?")[0])
            self.send_response(404 if answer is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - its name there
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_avro_masks_and_read_only(
    browser: Browser, broker: RunningNode, registry: str, tmp_path: Path, unique_topic: Callable[[str], str]
) -> None:
    """A console of its own, with a registry and rules, which changes nothing."""
    from confluent_kafka import Producer

    cities, payments = unique_topic("cities"), unique_topic("payments")
    with Admin(broker.bootstrap) as admin:
        admin.topics.create(cities, partitions=1)
        admin.topics.create(payments, partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(cities, value=b"\0\0\0\0\x07" + b"\x0aK\xc3\xb6ln")
    producer.produce(cities, value=b"\0\0\0\0\x63" + b"unknown schema")
    producer.produce(cities, value=b"\0\0\0\0\x08" + b"\x02\x02" + b"\x0a\x04Bonn\x10\xe0\xd2\x14")
    producer.produce(cities, value=b"\0\0\0\0\x08" + b"\x02\x0e" + b"no such message")
    producer.produce(payments, value=json.dumps({"card": {"number": "4111-1111"}, "amount": 3}))
    producer.produce(payments, value="card 4111-1111")
    producer.flush()
    options = ("--registry", registry, "--mask", f"{payments}:card.number", "--read-only")
    with running_console(tmp_path, broker.bootstrap, *options) as console:
        context = browser.new_context(base_url=console.address)
        page = context.new_page()
        page.goto(f"/topics/{cities}/messages?where=city+%3D+K%C3%B6ln")
        page.wait_for_selector("body[data-search=done]", state="attached")
        assert '{"city": "Köln"}' in page.locator("#rows").inner_text()
        page.goto(f"/topics/{cities}/messages?where=people+%3E+300000")
        page.wait_for_selector("body[data-search=done]", state="attached")
        assert '{"name": "Bonn", "people": 338272}' in page.locator("#rows").inner_text()
        page.goto("/schemas?subject=cities-value")
        assert "id 7, AVRO" in page.locator("main").inner_text()
        for where in ("", "?text=4111", "?where=card.number+~+4111"):
            page.goto(f"/topics/{payments}/messages{where}")
            page.wait_for_selector("body[data-search=done]", state="attached")
            assert "4111" not in page.locator("#rows").inner_text()
        page.goto(f"/topics/{payments}/messages/0/0")
        assert "•••" in page.locator("main").inner_text()
        assert "4111" not in page.content()
        with page.expect_download() as waiting:
            page.click("text=Download the value")
        assert "4111" not in waiting.value.path().read_text()
        page.goto(f"/topics/{payments}")
        assert page.locator("form[method=post]").count() == 0
        token = page.request.post("/do/topic.delete", form={"name": payments, "confirm": payments})
        assert token.status == 403
        context.close()
    assert payments in Path(tmp_path / "audit.jsonl").read_text()
