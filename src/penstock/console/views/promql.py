"""The console's series as questions to Prometheus, and its answers as points.

The names of metrics are those of Penstock's brokers, of Kafka's usual JMX exporter (traffic) and of kafka_exporter
(lag). `match` is put into every selector, where one Prometheus has the metrics of several clusters.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.client.errors import BadSetting
from penstock.console.views.charts import Point

POINTS = 180
STEP_MIN_S = 10
NAMES_MAX = 200
SERIES_MAX = 1_000
_MESSAGES = "kafka_server_brokertopicmetrics_messagesin_total"
_TOTALS = {
    "records": _MESSAGES,
    "bytes_in": "kafka_server_brokertopicmetrics_bytesin_total",
    "bytes_out": "kafka_server_brokertopicmetrics_bytesout_total",
}
_LAG = "kafka_consumergroup_lag"
_MATCH = re.compile(r'\s*[a-zA-Z_]\w*\s*(?:=|!=|=~|!~)\s*"(?:[^"\\\n]|\\.)*"\s*(?:,|$)')


@dataclass(frozen=True, slots=True)
class Question:
    kind: str
    query: str
    step_s: int


def check_match(text: str) -> str:
    """Label matchers, such as `cluster="prod"`. BadSetting for anything else."""
    rest = text
    while rest:
        found = _MATCH.match(rest)
        if found is None:
            raise BadSetting(f'--prometheus-match {text!r} is not like cluster="prod",job="kafka"')
        rest = rest[found.end() :]
    return text.strip().rstrip(",")


def question(kind: str, names: Sequence[str], span_s: float, match: str = "") -> Question | None:
    """None for series that Prometheus does not have."""
    step = max(STEP_MIN_S, math.ceil(span_s / POINTS))
    window = max(60, 4 * step)
    if kind in _TOTALS:
        selector = _selector(match, 'topic!=""')
        return Question(kind, f"sum(rate({_TOTALS[kind]}{selector}[{window}s]))", step)
    if not names or len(names) > NAMES_MAX:
        return None
    if kind == "written":
        selector = _selector(match, f"topic=~{_one_of(names)}")
        return Question(kind, f"sum by (topic) (rate({_MESSAGES}{selector}[{window}s]))", step)
    if kind == "lag":
        selector = _selector(match, f"consumergroup=~{_one_of(names)}")
        return Question(kind, f"sum by (consumergroup) ({_LAG}{selector})", step)
    groups = {name.partition("\0")[0] for name in names}
    if kind == "lag-partition" and len(groups) == 1:
        selector = _selector(match, f"consumergroup={_quoted(groups.pop())}")
        return Question(kind, f"sum by (consumergroup, topic, partition) ({_LAG}{selector})", step)
    return None


def points_of(kind: str, answer: Any) -> dict[str, list[Point]]:
    """The series of an answer to `query_range`, by the names that the console gives them. ValueError if it is none."""
    try:
        if answer["status"] != "success" or answer["data"]["resultType"] != "matrix":
            raise ValueError(str(answer.get("error", "no matrix"))[:200])
        series = answer["data"]["result"][:SERIES_MAX]
        return {_name(kind, each["metric"]): _points(each["values"]) for each in series}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not an answer of Prometheus: {error!r:.100}") from error


def _name(kind: str, labels: dict[str, str]) -> str:
    if kind == "written":
        return labels["topic"]
    if kind == "lag":
        return labels["consumergroup"]
    if kind == "lag-partition":
        return f"{labels['consumergroup']}\0{labels['topic']}-{labels['partition']}"
    return ""


def _points(values: list[Any]) -> list[Point]:
    found = [(float(at) * 1000.0, float(value)) for at, value in values]
    return [point for point in found if math.isfinite(point[1])]


def _selector(match: str, *matchers: str) -> str:
    return "{" + ",".join(filter(None, (*matchers, match))) + "}"


def _one_of(names: Sequence[str]) -> str:
    return _quoted("|".join(map(re.escape, names)))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
