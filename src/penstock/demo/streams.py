"""What flows in the demo: four topics of events, the pipelines that read them, and the topics these write.

Each event has a key and, for that key, a sequence that counts up from 0. Every pipeline passes each of its events on,
with something added, to a topic of its own, so that what went in can be counted against what came out.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

PARTITIONS = 3


@dataclass(frozen=True, slots=True)
class Flow:
    topic: str
    key: str
    """The field of the event that is the record's key."""
    group: str
    """The consumer group that reads it."""
    pipeline: str
    output: str
    """The topic to which the pipeline passes the events on."""


FLOWS = (
    Flow("truck-locations", "truck", "dispatchers", "fleet", "fleet.locations"),
    Flow("truck-fuel", "truck", "dispatchers", "fleet", "fleet.fuel"),
    Flow("page-views", "user", "shop-desk", "shop", "shop.views"),
    Flow("shop-logs", "service", "shop-desk", "shop", "shop.logs"),
)
PIPELINES = ("fleet", "shop")
GROUPS = ("dispatchers", "shop-desk")
REPORTS = {"fleet": "fleet.report", "shop": "shop.report"}
DEAD_LETTERS = {"fleet": "fleet.dead-letters", "shop": "shop.dead-letters"}
BY_TOPIC = {flow.topic: flow for flow in FLOWS}
BY_OUTPUT = {flow.output: flow for flow in FLOWS}
TOPICS = (*BY_TOPIC, *BY_OUTPUT, *REPORTS.values(), *DEAD_LETTERS.values())


def topics_of(pipeline: str) -> tuple[str, ...]:
    return tuple(flow.topic for flow in FLOWS if flow.pipeline == pipeline)


def pipeline_file(pipeline: str) -> str:
    return os.path.join(os.path.dirname(__file__), "pipelines", f"{pipeline}.yaml")
