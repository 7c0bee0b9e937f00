"""`python -m bench.console`: what the web console costs. A broker, a console, tabs that speak the console's protocol.

    start       a cluster of 10,000 topics: from the start of the console to the list of topics, and the list later
    tabs        50 tabs with live pages: CPU and memory of the console, and requests to the brokers, beside one tab
    search      5,000,000 records searched for a field of their JSON: records a second, and the memory afterwards

A tab is a stream of server-sent events. With `--browser`, one of them is Chromium. CPU time is that of the process, so
that other work on the machine disturbs it little; the load of the machine is printed with the rest.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from bench.processes import cpu_seconds, resident_bytes
from bench.subjects import Kafka, penstock
from penstock.arrow import write_table
from penstock.client.wire.admin import Admin
from penstock.local.ports import free_ports
from penstock.model.ids import TopicPartition

MEGABYTE = 1_000_000
ORDERS = "orders"
GROUP = "billing"
WRITTEN_AT_ONCE = 250_000
RATE = 200
LIVE = (
    "/?minutes=15",
    "/topics?sort=-rate",
    f"/topics/{ORDERS}",
    f"/group?name={GROUP}",
    f"/topics/{ORDERS}/messages/stream?follow=1",
)
SEARCHES = {
    "a number in the JSON": "where=total+%3E+199.9",
    "a text in the JSON": "where=status+%3D+%22lost%22",
    "any text": "text=nobody+has+this",
}


@dataclass(frozen=True)
class Console:
    pid: int
    host: str
    port: int
    ready_s: float
    began: float

    def get(self, path: str) -> tuple[float, bytes]:
        began = time.perf_counter()
        with urllib.request.urlopen(f"http://{self.host}:{self.port}{path}", timeout=120) as answer:
            body = answer.read()
        return time.perf_counter() - began, body

    def megabytes(self) -> float:
        return resident_bytes(self.pid) / MEGABYTE

    def peak_megabytes(self) -> float:
        with open(f"/proc/{self.pid}/status") as file:
            found = re.search(r"VmHWM:\s+(\d+)", file.read())
        return int(found.group(1)) * 1024 / MEGABYTE if found else 0.0


@contextlib.contextmanager
def console(bootstrap: str, directory: str) -> Iterator[Console]:
    command = [
        *(sys.executable, "-m", "penstock", "console", "-b", bootstrap, "--listen", "127.0.0.1:0"),
        *("--history", os.path.join(directory, "history.sqlite"), "--audit-log", os.path.join(directory, "audit")),
    ]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().rpartition(":")[2])
        try:
            yield Console(process.pid, "127.0.0.1", port, time.perf_counter() - began, began)
        finally:
            process.terminate()


class Tabs:
    """Open streams, and a thread that reads what they send."""

    def __init__(self, console: Console, paths: list[str]) -> None:
        self.received = 0
        self._sockets = [_open(console, path) for path in paths]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()
        for each in self._sockets:
            each.close()

    def _read(self) -> None:
        while not self._stopped.is_set():
            for each in select.select(self._sockets, [], [], 0.2)[0]:
                self.received += len(each.recv(1 << 16))


def _open(console: Console, path: str) -> socket.socket:
    connection = socket.create_connection((console.host, console.port))
    request = f"GET {path} HTTP/1.1\r\nHost: {console.host}:{console.port}\r\nAccept: text/event-stream\r\n\r\n"
    connection.sendall(request.encode())
    return connection


@contextlib.contextmanager
def browser_tab(console: Console, wanted: bool) -> Iterator[None]:
    if not wanted:
        yield
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(f"http://{console.host}:{console.port}/topics/{ORDERS}/messages?follow=1")
        page.wait_for_selector("#rows tr")
        yield
        browser.close()


@contextlib.contextmanager
def orders_written(bootstrap: str) -> Iterator[None]:
    """200 records a second, and a group that commits, while pages look on."""
    stopped = threading.Event()

    def write() -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
        with Admin(bootstrap) as admin:
            number = 0
            while not stopped.wait(0.5):
                for _ in range(RATE // 2):
                    number += 1
                    producer.produce(ORDERS, key=f"customer-{number % 40}", value=order(number))
                producer.flush()
                admin.groups.alter_offsets(GROUP, {TopicPartition(ORDERS, index): number // 4 for index in range(3)})

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def order(number: int) -> str:
    status = ("open", "paid", "shipped")[number % 3]
    return json.dumps(
        {"id": number, "status": status, "total": number % 200, "customer": {"name": "Ada", "city": "Köln"}}
    )


def requests_of(bootstrap: str) -> float:
    """How many requests the brokers have answered, by their metrics."""
    from penstock.console.observe.access import ClusterAccess
    from penstock.console.observe.sampler import Sampler

    traffic = Sampler(ClusterAccess(bootstrap)).take().traffic
    return sum(each.requests for each in traffic.values())


def show(what: str, value: str) -> None:
    print(f"{what:<64} {value}", flush=True)


def measure_start(kafka: Kafka, topics: int, seconds: float, directory: str) -> None:
    with Admin(kafka.bootstrap, timeout=120) as admin:
        for number in range(topics):
            admin.topics.create(f"topic-{number:05}", partitions=1)
    with console(kafka.bootstrap, directory) as running:
        show("console started", f"{running.ready_s:.2f} s, {running.megabytes():.0f} MB")
        _, first = running.get("/topics")
        while b"topic-00000" not in first:
            time.sleep(0.1)
            _, first = running.get("/topics")
        show(
            "the list of topics, since the start of the process",
            f"{time.perf_counter() - running.began:.2f} s, {cpu_seconds(running.pid):.2f} s of CPU",
        )
        for path in ("/topics", "/topics?q=0999&sort=-size", "/", "/topics/topic-05000"):
            took, body = running.get(path)
            show(f"GET {path}", f"{took:.3f} s, {len(body) / 1000:.0f} kB")
        before, began = cpu_seconds(running.pid), time.perf_counter()
        tabs = Tabs(running, ["/topics"])
        time.sleep(seconds)
        tabs.close()
        part = (cpu_seconds(running.pid) - before) / (time.perf_counter() - began)
        show("CPU with one tab on the list of topics", f"{part:.1%} of a core, {running.megabytes():.0f} MB")


def measure_tabs(kafka: Kafka, count: int, seconds: float, directory: str, *, browser: bool) -> None:
    with console(kafka.bootstrap, directory) as running, orders_written(kafka.bootstrap):
        running.get("/")
        for tabs in (0, 1, count):
            with browser_tab(running, browser and tabs > 0):
                paths = [LIVE[index % len(LIVE)] for index in range(tabs - 1 if browser and tabs else tabs)]
                streams = Tabs(running, paths)
                time.sleep(5)
                asked, before, began = requests_of(kafka.bootstrap), cpu_seconds(running.pid), time.perf_counter()
                heard = streams.received
                time.sleep(seconds)
                took = time.perf_counter() - began
                part = (cpu_seconds(running.pid) - before) / took
                requests = (requests_of(kafka.bootstrap) - asked) / took
                sent = (streams.received - heard) / took
                streams.close()
            show(
                f"{tabs} tabs at {RATE} records/s",
                f"{part:.1%} of a core, {running.megabytes():.0f} MB, {sent / 1000:.0f} kB/s, "
                f"{requests:.0f} requests/s to the broker",
            )


def fill(kafka: Kafka, records: int) -> None:
    with Admin(kafka.bootstrap) as admin:
        admin.topics.create(ORDERS, partitions=3)
    for first in range(0, records, WRITTEN_AT_ONCE):
        values = [order(number) for number in range(first, min(records, first + WRITTEN_AT_ONCE))]
        keys = [f"customer-{number % 40}" for number in range(len(values))]
        write_table(kafka.bootstrap, ORDERS, pa.table({"key": keys, "value": values}), key="key", value="value")


def measure_search(kafka: Kafka, rounds: int, directory: str) -> None:
    with console(kafka.bootstrap, directory) as running:
        running.get("/")
        show("before searches", f"{running.megabytes():.0f} MB")
        for _ in range(rounds):
            for title, query in SEARCHES.items():
                before = cpu_seconds(running.pid)
                seconds, body = running.get(f"/topics/{ORDERS}/messages/stream?{query}")
                used = cpu_seconds(running.pid) - before
                done = json.loads(body.rpartition(b"event: done\ndata: ")[2])
                searched = int(re.sub(r"\D", "", re.findall(r"all ([\d,]+) records", done["text"])[0]))
                show(
                    f"search for {title}",
                    f"{searched / seconds:,.0f} records/s ({seconds:.1f} s, {used:.1f} s of CPU), "
                    f"then {running.megabytes():.0f} MB, at most {running.peak_megabytes():.0f} MB",
                )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.console", description="What the web console costs.")
    parser.add_argument("what", nargs="*", default=["start", "tabs", "search"], help="start, tabs, search")
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--tabs", type=int, default=50)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=2, help="of searches")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each number of tabs")
    parser.add_argument("--browser", action="store_true", help="one of the tabs is Chromium")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        show("cores, load of the machine", f"{os.cpu_count()}, {os.getloadavg()[0]:.1f}")
        for what in given.what:
            here = os.path.join(directory, what)
            os.makedirs(here)
            metrics = f"127.0.0.1:{free_ports(1)[0]}"
            with penstock(os.path.join(here, "node"), {"penstock.metrics.listener": metrics}) as kafka:
                if what == "start":
                    measure_start(kafka, given.topics, 3 * given.seconds, here)
                elif what == "tabs":
                    fill(kafka, 10_000)
                    measure_tabs(kafka, given.tabs, given.seconds, here, browser=given.browser)
                else:
                    fill(kafka, given.records)
                    measure_search(kafka, given.rounds, here)
        show("load of the machine", f"{os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
