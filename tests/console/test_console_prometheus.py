"""History from Prometheus: the questions, the answers, and a server that is slow, wrong or gone."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.errors import BadSetting
from penstock.console.observe.prometheus import PrometheusHistory
from penstock.console.views.promql import NAMES_MAX, check_match, points_of, question
from waiting import wait_until


def test_questions() -> None:
    asked = question("lag", ["a.b", 'say "hi"'], 3600, 'cluster="prod"')
    assert asked is not None
    assert asked.step_s == 20
    assert asked.query == (
        'sum by (consumergroup) (kafka_consumergroup_lag{consumergroup=~"a\\\\.b|say\\\\ \\"hi\\"",cluster="prod"})'
    )
    total = question("bytes_in", [""], 60)
    assert total is not None
    assert total.query == 'sum(rate(kafka_server_brokertopicmetrics_bytesin_total{topic!=""}[60s]))'
    partitions = question("lag-partition", ["g\0t-1", "g\0t-2"], 60)
    assert partitions is not None
    assert 'consumergroup="g"' in partitions.query
    assert question("lag-partition", ["g\0t-1", "h\0t-2"], 60) is None
    assert question("lag-seconds", ["g"], 60) is None
    assert question("lag", [], 60) is None
    assert question("lag", ["g"] * (NAMES_MAX + 1), 60) is None


@given(st.lists(st.text(min_size=1), min_size=1, max_size=5))
def test_names_stay_inside_of_their_quotes(names: list[str]) -> None:
    for kind in ("lag", "written"):
        asked = question(kind, names, 60)
        assert asked is not None
        inner = asked.query[asked.query.index("=~") + 2 :]
        json.JSONDecoder().raw_decode(inner)


def test_matchers_are_checked() -> None:
    for good in ("", 'cluster="prod"', 'a!="x", b=~"y|z"', 'a="\\"quoted\\""'):
        assert check_match(good) == good.strip()
    for bad in ("prod", 'a="x"} or vector(1)', 'a="x', "a=x", 'a="x" b="y"'):
        with pytest.raises(BadSetting):
            check_match(bad)


def matrix(*series: tuple[dict[str, str], list[list[object]]]) -> dict[str, object]:
    result = [{"metric": labels, "values": values} for labels, values in series]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def test_answers() -> None:
    labels = {"consumergroup": "g", "topic": "t", "partition": "3"}
    answer = matrix((labels, [[10, "5"], [20, "NaN"], [30.5, "7"]]))
    assert points_of("lag-partition", answer) == {"g\0t-3": [(10_000.0, 5.0), (30_500.0, 7.0)]}
    assert points_of("lag", answer) == {"g": [(10_000.0, 5.0), (30_500.0, 7.0)]}
    assert points_of("records", matrix(({}, [[1, "2"]]))) == {"": [(1000.0, 2.0)]}
    wrong: list[object] = [{}, [], None, {"status": "error", "error": "bad"}, matrix(({}, [[1]]))]
    for bad in (*wrong, matrix(({}, [["x", "y"]]))):
        with pytest.raises(ValueError, match=r".+"):
            points_of("lag", bad)


class FakePrometheus:
    def __init__(self) -> None:
        self.status = 200
        self.asked: list[dict[str, list[str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                outer.asked.append(parse_qs(body))
                at = int(outer.asked[-1]["end"][0])
                self.send_response(outer.status)
                self.end_headers()
                self.wfile.write(json.dumps(matrix(({"consumergroup": "g"}, [[at, "42"]]))).encode())

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - its name there
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def prometheus() -> Iterator[FakePrometheus]:
    fake = FakePrometheus()
    thread = threading.Thread(target=fake.server.serve_forever)
    thread.start()
    yield fake
    fake.server.shutdown()
    fake.server.server_close()
    thread.join()


def test_a_page_does_not_wait_and_is_told(prometheus: FakePrometheus) -> None:
    told = threading.Event()
    history = PrometheusHistory(prometheus.url + "/", "", told.set)
    assert history.read_many("lag", ["g"], 0, 3_600_000) == {}
    assert told.wait(60)
    assert history.read_many("lag", ["g"], 0, 3_600_000) == {"g": [(3_600_000.0, 42.0)]}
    assert len(prometheus.asked) == 1, "an answer counts for a while"
    assert prometheus.asked[0]["step"] == ["20s"]
    assert history.problem is None


def test_a_server_that_fails_is_left_alone_for_a_while(prometheus: FakePrometheus) -> None:
    told = threading.Event()
    prometheus.status = 503
    history = PrometheusHistory(prometheus.url, "", told.set)
    history.read_many("lag", ["g"], 0, 60_000)
    assert told.wait(60)
    wait_until(lambda: history.problem is not None, "the problem is named")
    assert "503" in (history.problem or "")
    assert history.read_many("lag", ["g"], 0, 60_000) == {}
    assert len(prometheus.asked) == 1
