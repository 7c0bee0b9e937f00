"""The same pipeline in Python and in a file; the JSON Schema."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.pipelines import (
    Decoding,
    Duration,
    Expectation,
    FormatSink,
    FormatSource,
    Pipeline,
    Restart,
    Secret,
    Step,
    TopicSink,
    TopicSource,
    Watermark,
)
from penstock.pipelines.check.validate import check_made
from penstock.pipelines.spec import json_schema
from penstock.pipelines.spec.documents import parse, plain
from penstock.pipelines.spec.loading import bind, dumped
from pipelines.bad_files import CASES

# On a busy machine it is the machine that is slow.
UNHURRIED = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
TEXTS = st.text(
    st.characters(categories=["L", "N", "P", "S", "Zs"], exclude_characters="\x85"), min_size=1, max_size=20
)
OPTIONS = st.dictionaries(NAMES, TEXTS | st.just(Secret("jdbc:x?p=${secret:env:P}")), max_size=2)
DURATIONS = st.integers(0, 10**10).map(Duration)
WATERMARKS = st.none() | st.builds(Watermark, column=NAMES, delay=DURATIONS)
EXPECTATIONS = st.lists(
    st.builds(Expectation, that=TEXTS, otherwise=st.sampled_from(["keep", "drop", "dead-letter", "fail"]), name=TEXTS),
    max_size=2,
).map(tuple)
SOURCES = st.one_of(
    st.builds(
        TopicSource,
        topic=st.lists(NAMES, min_size=1, max_size=2).map(tuple),
        value=st.builds(Decoding, format=st.sampled_from(["string", "json"]), schema=TEXTS, options=OPTIONS),
        max_records=st.none() | st.integers(1, 10**6),
        watermark=WATERMARKS,
        expect=EXPECTATIONS,
        options=OPTIONS,
    ),
    st.builds(FormatSource, format=NAMES, mode=st.sampled_from(["stream", "lookup"]), path=TEXTS, options=OPTIONS),
)
SINKS = st.one_of(
    st.builds(TopicSink, source=NAMES, topic=NAMES, key=TEXTS, headers=st.dictionaries(NAMES, TEXTS, max_size=2)),
    st.builds(FormatSink, source=NAMES, format=NAMES, partition_by=st.lists(NAMES, max_size=2).map(tuple)),
)
PIPELINES = st.builds(
    Pipeline,
    name=NAMES,
    description=TEXTS,
    trigger=st.none() | DURATIONS,
    sources=st.dictionaries(NAMES, SOURCES, max_size=2),
    steps=st.dictionaries(NAMES, st.builds(Step, sql=TEXTS, stateful=st.booleans(), expect=EXPECTATIONS), max_size=2),
    sinks=st.dictionaries(NAMES, SINKS, max_size=2),
    restart=st.builds(Restart, attempts=st.integers(0, 9), backoff=DURATIONS),
    spark=st.dictionaries(NAMES, TEXTS, max_size=1),
)


@UNHURRIED
@given(PIPELINES)
def test_a_pipeline_made_in_python_is_the_same_in_a_file(pipeline: Pipeline) -> None:
    text = dumped(pipeline)
    loaded = bind(parse(text, "x.yaml"), "x.yaml")

    assert (loaded.pipeline, loaded.problems) == (pipeline, ())
    jsonschema.validate(plain(parse(text, "x.yaml")), json_schema.published())


@UNHURRIED
@given(st.integers(0, 10**12).map(Duration))
def test_durations_are_read_as_they_are_written(duration: Duration) -> None:
    assert Duration.parse(str(duration)) == duration


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("500ms", 500), ("10 s", 10_000), ("5 minutes", 300_000), ("1h30m", 5_400_000), ("1.5 hours", 5_400_000),
     ("2 Days", 172_800_000)],
)  # fmt: skip
def test_durations(text: str, milliseconds: int) -> None:
    assert Duration.parse(text).milliseconds == milliseconds


@pytest.mark.parametrize("text", ["", "10", "ten seconds", "10 fortnights", "1h x", "-5s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a length of time"):
        Duration.parse(text)


def test_problems_of_a_pipeline_made_in_python_name_their_path() -> None:
    pipeline = Pipeline(
        name="orders",
        sources={"orders": TopicSource(topic=("orders",), value=Decoding(format="json", schema="id BIGINT"))},
        steps={"large": Step(sql="SELECT idd FROM orders")},
        sinks={"large": TopicSink(source="lrge", topic="large")},
    )

    assert [str(problem) for problem in check_made(pipeline)] == [
        'sinks.large.from: error: no source or step "lrge"; did you mean "large"?',
        'steps.large.sql: error: no column "idd"; did you mean "id"?',
    ]


def test_a_function_has_no_form_in_a_file() -> None:
    pipeline = Pipeline(name="a", steps={"b": Step(python=len)})

    with pytest.raises(TypeError, match="name it as module:function"):
        dumped(pipeline)


def test_the_published_schema_is_the_models() -> None:
    with open(json_schema.FILE, encoding="utf-8") as file:
        assert file.read() == json_schema.text(), "run python -m penstock.pipelines.spec.json_schema"
    jsonschema.Draft202012Validator.check_schema(json_schema.published())


@pytest.mark.parametrize("name", ["nearest field", "several at once, in order", "no name", "scalar for a mapping"])
def test_the_schema_refuses_what_the_parser_refuses(name: str) -> None:
    value: Any = yaml.safe_load(CASES[name][0])

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(copy.deepcopy(value), json_schema.published())


def test_looking_at_a_file_imports_neither_spark_nor_its_friends() -> None:
    """They would take longer than all the rest."""
    code = """if True:
        import sys
        import penstock.cli.app, penstock.pipelines.check.validate, penstock.pipelines.operate.graph
        print([name for name in ("pyspark", "pandas", "pyarrow", "numba", "fastavro") if name in sys.modules])
    """
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert printed.strip() == "[]"
