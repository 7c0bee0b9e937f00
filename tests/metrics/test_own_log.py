"""A node's own log as JSON: every line is an object with the same fields, whatever happens."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

from penstock.broker.node_log import JsonFormatter
from penstock.client.wire.admin import Admin
from penstock.testing.nodes import start_node

FIELDS = ["time", "level", "logger", "node", "message"]


def formatted(message: str, *arguments: object, exception: BaseException | None = None) -> dict[str, object]:
    info = None if exception is None else (type(exception), exception, exception.__traceback__)
    record = logging.LogRecord("penstock.test", logging.ERROR, "file.py", 1, message, arguments, info)
    line = JsonFormatter(7).format(record)
    assert "\n" not in line
    parsed: dict[str, object] = json.loads(line)
    return parsed


def test_fields() -> None:
    line = formatted("%s: %d records", 'a "topic"\nof mine \u2028', 3)
    assert list(line) == FIELDS
    assert line["message"] == 'a "topic"\nof mine \u2028: 3 records'
    assert (line["level"], line["logger"], line["node"]) == ("ERROR", "penstock.test", 7)
    assert datetime.fromisoformat(str(line["time"])).utcoffset() is not None


def test_an_exception_stays_in_its_line() -> None:
    try:
        raise ValueError("of several\nlines")
    except ValueError as error:
        line = formatted("it failed", exception=error)
    assert list(line) == [*FIELDS, "exception"]
    assert "ValueError: of several\nlines" in str(line["exception"])


def test_every_line_of_a_node_parses(tmp_path: Path) -> None:
    properties = {"penstock.log.format": "json", "no.such.setting": "1"}
    with start_node(tmp_path / "node", properties=properties) as node:
        with Admin(node.bootstrap) as admin:
            admin.topics.create("a-topic")
        node.stop()
        # A start that fails says so in the same way.
        failed = subprocess.run(
            [
                sys.executable,
                "-m",
                "penstock",
                "server",
                node.properties_path,
                "-o",
                "penstock.metrics.listener=192.0.2.1:1",
            ],
            capture_output=True,
            text=True,
            env=dict(os.environ),
            check=False,
        )
        text = node.log_text()
    assert failed.returncode == 1
    lines = [json.loads(line) for line in (text + failed.stderr).splitlines()]
    assert all(list(line)[:5] == FIELDS and line["node"] == 1 for line in lines)
    messages = [str(line["message"]) for line in lines]
    assert any("unknown setting no.such.setting" in message for message in messages)
    assert any("is ready" in message for message in messages)
    assert "stopped" in messages
    assert "cannot listen on 192.0.2.1:1 (penstock.metrics.listener)" in messages[-1]
    assert lines[-1]["level"] == "CRITICAL"
