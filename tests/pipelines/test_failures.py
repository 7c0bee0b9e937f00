"""The report of a failed query: the cause first, whether a retry can help, and what to do."""

from __future__ import annotations

import pytest

from penstock.arrow.errors import BadColumn
from penstock.client.errors import ClientError
from penstock.pipelines.engine.failures import BY_CLASS, QueryFailed, explain
from penstock.pipelines.sinks import SinkUnavailable
from penstock.pipelines.spec.problems import PipelineFailed
from penstock.pipelines.spec.secrets import SecretMissing
from penstock.spark.sink.two_phase import OlderCheckpoint
from penstock.spark.source.errors import MissingTopic

STREAM = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
PLANNING = (
    f"{STREAM}[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform "
    'latestOffset: Traceback (most recent call last):\n  File "x/streaming_source_runner.py", line 1\n    f()\n'
    '  File "y/topic_logs.py", line 96, in _first_look\n    raise self._not_there(missing)\n'
)
WRITING = (
    f"{STREAM}py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: Traceback (most recent "
    'call last):\n  File "call_java_with_exceptions.py", line 1\n'
)
END = " SQLSTATE: 38000\n=== Streaming Query ===\nIdentifier: x\npenstock.pipelines.spec.problems.PipelineFailed: no\n"


@pytest.mark.parametrize(
    ("text", "what", "why", "ends", "ends_once"),
    [
        (
            f"{PLANNING}penstock.spark.source.errors.MissingTopic: there is no topic 'x' (subscribe) at b:9092.{END}",
            "finding the records to read",
            "there is no topic 'x' (subscribe) at b:9092.",
            False,
            True,
        ),
        (
            f"{PLANNING}penstock.spark.source.errors.SourceUnreachable: b:1: Connection refused{END}",
            "finding the records to read",
            "b:1: Connection refused",
            False,
            False,
        ),
        (
            f"{PLANNING}penstock.spark.source.errors.DataLost: t-0: offsets 0 to 4 are lost{END}",
            "finding the records to read",
            "t-0: offsets 0 to 4 are lost",
            True,
            True,
        ),
        (
            f"{PLANNING}penstock.model.errors.KafkaError: TOPIC_AUTHORIZATION_FAILED: topic 't'{END}",
            "finding the records to read",
            "TOPIC_AUTHORIZATION_FAILED: topic 't'",
            True,
            True,
        ),
        (
            f"{PLANNING}penstock.model.errors.KafkaError: NOT_LEADER_OR_FOLLOWER: topic 't'{END}",
            "finding the records to read",
            "NOT_LEADER_OR_FOLLOWER: topic 't'",
            False,
            False,
        ),
        (
            f"{WRITING}psycopg.OperationalError: refused\n\nThe above exception was the direct cause:\n\n"
            f'penstock.pipelines.sinks.destination.SinkUnavailable: sink "t": PostgreSQL: refused{END}',
            'writing to sink "t"',
            'sink "t": PostgreSQL: refused',
            False,
            False,
        ),
        (
            f'{WRITING}penstock.pipelines.spec.problems.PipelineFailed: sink "t": the table has no column "a"{END}',
            'writing to sink "t"',
            'sink "t": the table has no column "a"',
            True,
            True,
        ),
        (
            f"{WRITING}RuntimeError: broken on purpose{END}",
            "computing or writing the batch",
            "RuntimeError: broken on purpose",
            False,
            False,
        ),
        (
            f"{STREAM}[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided value schema does not match.{END}",
            "continuing from its state",
            "[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided value schema does not match.",
            True,
            True,
        ),
        (
            f"{STREAM}Job aborted due to stage failure: Task 0 failed:\n"
            "org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] an amount SQLSTATE: P0001\n"
            f'[USER_RAISED_EXCEPTION] "orders" expects an amount{END}',
            "computing or writing the batch",
            '[USER_RAISED_EXCEPTION] "orders" expects an amount',
            True,
            True,
        ),
        (
            f"{WRITING}pyspark.errors.exceptions.captured.AnalysisException: [UNRESOLVED_COLUMN.X] no column{END}",
            "computing or writing the batch",
            "[UNRESOLVED_COLUMN.X] no column",
            True,
            True,
        ),
        (
            f"{STREAM}Job aborted due to stage failure: org.apache.spark.api.python.PythonException: Traceback (most "
            'recent call last):\n  File "/lib/python3.11/site-packages/pyspark/worker.py", line 9, in main\n'
            f"  File \"/home/ann/prices.py\", line 13, in converted\nKeyError: 'EUR'{END}",
            "computing or writing the batch",
            "KeyError: 'EUR' (prices.py, line 13)",
            False,
            False,
        ),
        (
            f"{WRITING}pyspark.errors.exceptions.captured.AnalysisException: [UNRESOLVED_COLUMN.X] no column\n\n"
            "The above exception was the direct cause of the following exception:\n\n"
            f'penstock.pipelines.spec.problems.StepFailed: step "s": [UNRESOLVED_COLUMN.X] no column{END}',
            'computing step "s"',
            'step "s": [UNRESOLVED_COLUMN.X] no column',
            True,
            True,
        ),
        (
            f'{WRITING}penstock.pipelines.spec.problems.StepFailed: step "s": ValueError: no price (s.py, line 2){END}',
            'computing step "s"',
            'step "s": ValueError: no price (s.py, line 2)',
            False,
            False,
        ),
        (
            "An error occurred while calling o9.start.\n: com.fasterxml.jackson.core.JsonParseException: Unrecognized "
            "token 'x'\n at [Source: (String)]\n\tat org.apache.spark.sql.X.y(X.scala:1)\n",
            "starting from its checkpoint",
            "com.fasterxml.jackson.core.JsonParseException: Unrecognized token 'x'",
            True,
            True,
        ),
        (f"{STREAM}no worker{END}", "computing or writing the batch", "no worker", False, False),
    ],
)
def test_what_spark_tells(text: str, what: str, why: str, ends: bool, ends_once: bool) -> None:
    failure = explain(RuntimeError(text))

    assert (failure.what, failure.why) == (what, why)
    assert (failure.ends_run(once=False), failure.ends_run(once=True)) == (ends, ends_once)
    assert failure.advice.do


def test_errors_that_spark_has_not_seen() -> None:
    assert explain(MissingTopic("there is no topic 'x'")).why == "there is no topic 'x'"
    assert explain(PipelineFailed('step "s": f returned a list')).what == 'computing step "s"'
    assert not explain(SinkUnavailable("down")).ends_run(once=True)
    assert explain(ValueError()).why == "ValueError"
    planned = "[UNRESOLVED_COLUMN.X] no column `a`. SQLSTATE: 42703; line 1 pos 7;\n'Project ['a]\n+- Relation [id#1]"
    assert explain(RuntimeError(planned)).why == "[UNRESOLVED_COLUMN.X] no column `a`."


def test_a_failed_run_ends_with_five_lines() -> None:
    failure = explain(PipelineFailed('sink "t": there is no table t; create it first'))

    failed = QueryFailed("shop", "orders", 17, failure, 3)

    assert str(failed) == 'query "orders" failed 3 times: sink "t": there is no table t; create it first'
    assert [line.partition(":")[0] for line in failed.lines] == ["query", "batch", "what", "why", "what to do"]
    assert failed.lines[:2] == ("query:      orders of shop, failed 3 times", "batch:      17")
    assert QueryFailed("shop", "orders", 0, failure, 1).lines[0] == "query:      orders of shop, failed once"


def test_all_names_are_names_of_errors() -> None:
    """An error that is renamed does not silently lose its advice."""
    assert issubclass(SecretMissing, ClientError)
    assert issubclass(OlderCheckpoint, ClientError)
    assert issubclass(BadColumn, ClientError)

    def below(kind: type[Exception]) -> set[str]:
        return {kind.__name__}.union(*(below(each) for each in kind.__subclasses__()))

    assert set(BY_CLASS) <= below(ClientError)
