"""What can be known of running without Spark."""

from __future__ import annotations

from penstock.pipelines import Duration, Restart
from penstock.pipelines.engine.failures import message_of
from penstock.pipelines.engine.fixtures import unmatched
from penstock.pipelines.engine.plain_rows import Instant
from penstock.pipelines.engine.runner import Backoff
from penstock.pipelines.spec.secrets import Secret
from penstock.spark.sink.naming import sink_id


def test_pauses_double_up_to_a_limit_and_end() -> None:
    policy = Restart(attempts=5, backoff=Duration(1000), backoff_max=Duration(6000), healthy_after=Duration(60_000))
    backoff = Backoff(policy, chance=lambda: 1.0)

    assert [backoff.failed(ran_seconds=1) for _ in range(6)] == [1, 2, 4, 6, 6, None]


def test_a_query_that_ran_long_counts_anew() -> None:
    backoff = Backoff(Restart(attempts=2, healthy_after=Duration(60_000)), chance=lambda: 0.0)

    assert [backoff.failed(1), backoff.failed(1), backoff.failed(61), backoff.failed(1)] == [0.75, 1.5, 0.75, 1.5]
    assert backoff.failed(1) is None
    assert Backoff(Restart(attempts=0), chance=lambda: 0.0).failed(1000) is None


def test_sink_ids_never_change() -> None:
    """A batch that was decided under a name is written again under another."""
    assert sink_id("shop", "orders", checkpoint="7d9b") == "shop-orders-2a3e0a12283a"
    assert sink_id("shop.eu", "orders", "b", "c", checkpoint="7d9b") == "shop-eu-orders-b-c-a6a654bf448f"


def test_sink_ids_differ_where_names_do() -> None:
    ids = {
        sink_id("a.b", "c", checkpoint="1"),
        sink_id("a.b", "c", checkpoint="2"),
        sink_id("a-b", "c", checkpoint="1"),
        sink_id("a", "b-c", checkpoint="1"),
        sink_id("a.b", "c", "x", checkpoint="1"),
        sink_id("x" * 200, "y", checkpoint="1"),
    }

    assert len(ids) == 6
    assert all(len(each) <= 100 and each.replace("-", "").replace("_", "").isalnum() for each in ids)


def test_messages_are_one_line_without_secrets_and_stacks() -> None:
    Secret("${secret:env:WORD}").reveal({"WORD": "open-sesame"})
    error = RuntimeError(
        "An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):\n"
        '  File "x.py", line 1, in f\n    g()\n'
        "pyspark.errors.exceptions.captured.AnalysisException: no table at jdbc:x?p=open-sesame\n"
        "\tat org.apache.spark.Nowhere(Nowhere.scala:1)\n"
    )

    told = message_of(error)

    assert told == "pyspark.errors.exceptions.captured.AnalysisException: no table at jdbc:x?p=*** (x.py, line 1)"
    failed = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: no worker SQLSTATE: XXKST\n"
    assert message_of(RuntimeError(f"{failed}=== Streaming Query ===\nIdentifier: x")) == "no worker"
    cause = "psycopg.OperationalError: no such file\n\nThe above exception was the direct cause of the following one:"
    ours = 'penstock.pipelines.sinks.destination.SinkUnavailable: sink "table": PostgreSQL: no such file'
    assert message_of(RuntimeError(f"{cause}\n\n{ours}\n")) == 'sink "table": PostgreSQL: no such file'


def test_rows_are_paired_whatever_their_order() -> None:
    expected = [{"a": 1}, {"a": 1, "b": 2}]
    found = [{"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 3}]

    assert list(unmatched("x", expected, found)) == []
    assert list(unmatched("x", [*expected, {"a": 1}], found)) == ['x: missing {"a": 1}']
    assert list(unmatched("x", expected[:1], found)) == ['x: unexpected {"a": 1, "b": 3}']


def test_a_time_is_compared_as_an_instant() -> None:
    found = [{"at": Instant("2026-05-01T08:00:00.500Z")}]
    same = ("2026-05-01T08:00:00.5Z", "2026-05-01T08:00:00.500000", "2026-05-01T10:00:00.5+02:00", "20260501T080000.5")
    others = ("2026-05-01T08:00:00Z", "2026-05-01T08:00:00.5+02:00", "2026-05-01", "soon", 1_777_622_400, None)

    assert [list(unmatched("x", [{"at": text}], found)) for text in same] == [[]] * 4
    assert [next(unmatched("x", [{"at": text}], found)) for text in others[:2]] == [
        'x: missing {"at": "2026-05-01T08:00:00Z"}',
        'x: missing {"at": "2026-05-01T08:00:00.5+02:00"}',
    ]
    assert all(len(list(unmatched("x", [{"at": text}], found))) == 2 for text in others)
    assert list(unmatched("x", [], found)) == ['x: unexpected {"at": "2026-05-01T08:00:00.500Z"}']
    assert list(unmatched("x", [{"at": "+12026-05-01"}], [{"at": Instant("+12026-05-01")}])) == []
