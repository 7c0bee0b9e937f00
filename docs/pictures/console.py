"""Takes the pictures of the console for the documentation: `python docs/pictures/console.py`.

Runs a local cluster with some orders, a group that falls behind and a console, and photographs its pages with Chromium.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from playwright.sync_api import Page, sync_playwright

from penstock.client.wire.admin import Admin
from penstock.model.ids import TopicPartition
from penstock.testing.cluster import Cluster

HERE = Path(__file__).parent
SECONDS = 75
PAGES = {
    "overview": "/?minutes=15",
    "messages": "/topics/orders/messages?where=status+%3D+%22open%22",
    "group": "/group?name=billing&minutes=15",
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
        for name, partitions in (("orders", 3), ("payments", 2), ("shipments", 2), ("customers", 1)):
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
            read = [each + 55 - 0.5 * second * (partition + 1) / 3 for partition, each in enumerate(read)]
            offsets = {TopicPartition("orders", partition): int(each) for partition, each in enumerate(read)}
            admin.groups.alter_offsets("billing", offsets)
            time.sleep(1)


def photograph(page: Page, address: str) -> None:
    for name, path in PAGES.items():
        page.goto(address + path)
        page.wait_for_selector("#rows tr" if name == "messages" else "figure path.line")
        page.wait_for_timeout(2500)
        page.screenshot(path=str(HERE / f"console-{name}.png"))


def main() -> None:
    chromium = shutil.which("chromium")
    with (
        tempfile.TemporaryDirectory() as directory,
        Cluster(brokers=1) as cluster,
        console(cluster.bootstrap, directory) as address,
        sync_playwright() as playwright,
    ):
        trade(cluster.bootstrap)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1280, "height": 760}, color_scheme="light")
        photograph(context.new_page(), address)
        browser.close()


if __name__ == "__main__":
    main()
