"""Takes the pictures of the console for the documentation: `python docs/pictures/console.py`.

Runs a local cluster with some orders, a group that falls behind and a console, and photographs its pages with Chromium:
in the light, in the dark, and on a phone.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from confluent_kafka import Producer
from playwright.sync_api import Browser, sync_playwright

from penstock.client.wire.admin import Admin
from penstock.local.cluster import plan_cluster
from penstock.local.ports import free_ports
from penstock.model.ids import TopicPartition

HERE = Path(__file__).parent
SECONDS = 150
DESK = (1280, 860)
PHONE = (390, 760)
PICTURES = {
    "overview": ("/?minutes=15", "light", (1280, 1000)),
    "overview-phone": ("/?minutes=15", "dark", PHONE),
    "messages": ("/topics/orders/messages?where=status+%3D+%22open%22", "light", DESK),
    "messages-dark": ("/topics/orders/messages?where=status+%3D+%22open%22", "dark", DESK),
    "group": ("/group?name=billing&minutes=15", "light", DESK),
}


@contextmanager
def console(bootstrap: str, directory: str) -> Iterator[str]:
    command = [
        *(sys.executable, "-m", "penstock", "console", "-b", bootstrap, "--listen", "127.0.0.1:0"),
        *("--history", f"{directory}/history.sqlite", "--audit-log", f"{directory}/audit"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[1]
        process.terminate()


def trade(bootstrap: str) -> None:
    """Orders for a minute, and a group that reads them more and more slowly."""
    chance = random.Random(7)
    with Admin(bootstrap) as admin:
        for name, partitions in (("orders", 3), ("payments", 6), ("shipments", 6), ("customers", 1)):
            admin.topics.create(name, partitions=partitions)
        producer = Producer({"bootstrap.servers": bootstrap})
        read = [0.0] * 3
        for second in range(SECONDS):
            for index in range(int(150 + 50 * chance.random())):
                order = {
                    "id": second * 200 + index,
                    "status": chance.choice(["open", "paid", "shipped"]),
                    "total": round(chance.random() * 200, 2),
                    "customer": {"name": chance.choice(["Ada", "Bo", "Chiara", "Dmitri"]), "city": "Köln"},
                }
                producer.produce("orders", key=f"customer-{index % 40}", value=json.dumps(order, ensure_ascii=False))
            producer.flush()
            pace = [55 - 0.25 * second * (partition + 1) / 3 for partition in range(3)]
            read = [each + step for each, step in zip(read, pace, strict=True)]
            offsets = {TopicPartition("orders", partition): int(each) for partition, each in enumerate(read)}
            admin.groups.alter_offsets("billing", offsets)
            time.sleep(1)


def photograph(browser: Browser, address: str) -> None:
    for name, (path, theme, (width, height)) in PICTURES.items():
        scheme: Literal["light", "dark"] = "dark" if theme == "dark" else "light"
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        page.goto(address + path)
        if "messages" in name:
            page.wait_for_selector("body[data-search=done]", state="attached")
        else:
            page.wait_for_selector("figure path.line", state="attached")
            if "overview" in name:
                page.wait_for_selector("#doctor:has-text('Looked at')")
            page.wait_for_timeout(3000)  # rates are known
        page.screenshot(path=str(HERE / f"console-{name}.png"))
        page.close()


@contextmanager
def cluster(directory: str) -> Iterator[str]:
    """Three brokers with metrics, in three racks."""
    planned = plan_cluster(directory, host="127.0.0.1", ports=free_ports(3), metrics=True)
    nodes = [*planned.controllers, *planned.brokers]
    for number, node in enumerate(planned.brokers, 1):
        node.properties["broker.rack"] = f"rack-{number}"
    try:
        for node in nodes:
            node.start()
        for node in nodes:
            node.wait_ready(60)
        yield planned.bootstrap
    finally:
        for node in reversed(nodes):
            node.stop()


def main() -> None:
    chromium = shutil.which("chromium")
    with (
        tempfile.TemporaryDirectory() as directory,
        cluster(directory) as bootstrap,
        console(bootstrap, directory) as address,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        trading = threading.Thread(target=trade, args=(bootstrap,))
        trading.start()
        time.sleep(SECONDS - 15)
        photograph(browser, address)
        browser.close()
        trading.join()


if __name__ == "__main__":
    main()
