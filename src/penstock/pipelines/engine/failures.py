"""Explains why a query has failed: the cause first, whether another attempt can help, and what to do.

An error reaches the runner wrapped several times: an exception in a worker or a planner becomes text in a Java
exception, that becomes the text of a failed query, and Spark adds stacks and plans at every step. The cause is the last
exception of Penstock in that text; if there is none, the last exception of another library.

Some errors are permanent: the same batch fails in the same way until you change the pipeline, its table or its topic.
Such a run ends at once. Everything else may be a broker that restarts or a network that fails, and is tried again as
`restart` says. Everything here is pure; messages contain no secrets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from penstock.pipelines.spec.problems import PipelineFailed
from penstock.pipelines.spec.secrets import redacted

_CHARACTERS_MAX = 500

_NAME = r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*"
_OURS = "penstock."
_RAISED = re.compile(rf"^(?:Caused by: |: )?(?P<name>{_NAME})(?:: (?P<message>.*))?$")
"""The line of a traceback that names an exception. A name without a module is one of Python's own, or no exception."""
_BUILT_IN = ("Error", "Exception", "Interrupt", "Iteration", "Exit")
_CONDITION = re.compile(r"\[(?P<condition>[A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]")
_FAILED_QUERY = re.compile(
    r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: |(?: SQLSTATE: \w+(?:; line \d+ pos \d+;?)?)+$"
)
_FRAME = re.compile(r'^ *File "(?P<file>[^"]+)", line (?P<line>\d+), in ', re.MULTILINE)
_LIBRARY_FILE = re.compile(r"^<|/(?:pyspark|penstock|site-packages|dist-packages|lib/python3\.\d+|pyspark\.zip)/")
_WRAPPERS = re.compile(
    r"^(org\.apache\.spark\.(SparkException|sql\.streaming\.StreamingQueryException|api\.python\.PythonException)"
    r"|py4j\.\w+(\.\w+)*|java\.util\.concurrent\.ExecutionException)$"
)


@dataclass(frozen=True, slots=True)
class Advice:
    heals: bool
    do: str
    waits_for_topic: bool = False
    """It heals when the topic comes, for which a run with --once does not wait."""


_AGAIN = "run it again once the cause is gone"
_DAMAGED = Advice(
    False, "restore the checkpoint, or give the step or source another name, so that its query begins anew"
)
_ANOTHER_NAME = "give the step or source another name, so that its query begins anew, or undo the edit"

BY_CLASS: dict[str, Advice] = {
    "MissingTopic": Advice(True, "create the topic, or correct its name in the file", waits_for_topic=True),
    "UnknownTopic": Advice(True, "create the topic, or correct its name in the file", waits_for_topic=True),
    "BadOption": Advice(False, "correct the options in the file"),
    "BadSetting": Advice(False, "correct the options in the file"),
    "ForeignCheckpoint": Advice(False, _ANOTHER_NAME),
    "DataLost": Advice(
        False, 'set failOnDataLoss: "false" in the options of the source to go on without the lost records'
    ),
    "OutOfRange": Advice(False, "correct starting_offsets in the file"),
    "NotAuthorized": Advice(False, "correct the credentials, or give the user the right that is missing"),
    "RecordTooLarge": Advice(False, "raise max.message.bytes of the topic, or write smaller records"),
    "SecretMissing": Advice(False, "set the variable or the file that the secret refers to"),
    "UnsupportedApi": Advice(False, "use brokers that support it"),
    "OlderCheckpoint": Advice(
        False, "restore the checkpoint, or give the source or step another name to write it again"
    ),
    "OtherQuery": Advice(False, _ANOTHER_NAME),
    "NotCarriedOut": Advice(
        False, "restore the rows that the message names, then give the source or step another name"
    ),
    "BadColumn": Advice(False, "correct the columns of the sink in the file"),
    "SourceUnreachable": Advice(True, "start the brokers, or correct bootstrap in the file"),
    "Unreachable": Advice(True, "start the brokers, or correct bootstrap in the file"),
    "TimedOut": Advice(True, "see whether the brokers are well: penstock doctor"),
    "SinkUnavailable": Advice(True, "start the server of the sink, or correct the options of the sink"),
    "PipelineFailed": Advice(False, "do what the line above says and run it again; the batch is repeated"),
}
_DENIED = ("AUTHORIZATION_FAILED", "SASL_AUTHENTICATION_FAILED")
"""In the message of a KafkaError, which begins with its code."""

OF_OTHERS: dict[str, Advice] = {
    "AnalysisException": Advice(False, "correct the SQL; penstock pipeline validate --analyze shows the place"),
    "ParseException": Advice(False, "correct the SQL; penstock pipeline validate --analyze shows the place"),
    "JsonParseException": _DAMAGED,
    "OutOfMemoryError": Advice(
        False, 'give Spark more memory (spark: {spark.driver.memory: 4g}), or set "max_records"'
    ),
}
BY_CONDITION: tuple[tuple[str, Advice], ...] = (
    ("STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE", Advice(False, _ANOTHER_NAME)),
    ("STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE", Advice(False, _ANOTHER_NAME)),
    ("STATE_STORE_INVALID_", Advice(False, _ANOTHER_NAME)),
    ("STREAMING_STATEFUL_OPERATOR_", Advice(False, _ANOTHER_NAME)),
    ("STREAM_STREAM_JOIN_INCOMPATIBLE", Advice(False, _ANOTHER_NAME)),
    (
        "USER_RAISED_EXCEPTION",
        Advice(
            False, 'correct the expectation or the record, or say "otherwise: dead-letter" (or "on_error") to go on'
        ),
    ),
    ("PATH_NOT_FOUND", Advice(True, "put the files there, or correct the path")),
    ("TABLE_OR_VIEW_NOT_FOUND", Advice(True, "create the table, or correct its name")),
)
"""By the beginning of Spark's name for the error; the first that fits."""

UNKNOWN = Advice(True, f"{_AGAIN}; --spark-log ERROR shows what Spark says about it")
_FAILED_STEP = Advice(True, f"correct the function or the data it fails on; {_AGAIN}")
_BAD_STEP = Advice(False, "correct the step; penstock pipeline validate --analyze shows the place")


@dataclass(frozen=True, slots=True)
class Failure:
    what: str
    """What could not be done."""
    why: str
    """One line, the cause."""
    advice: Advice

    def ends_run(self, *, once: bool) -> bool:
        """Whether no further attempt can succeed."""
        return not self.advice.heals or (once and self.advice.waits_for_topic)


class QueryFailed(PipelineFailed):
    """A query that has ended the run. The message is one line; `lines` say it all."""

    def __init__(self, pipeline: str, query: str, batch: int, failure: Failure, times: int) -> None:
        often = f" {times} times" if times > 1 else ""
        super().__init__(f'query "{query}" failed{often}: {failure.why}')
        self.lines = (
            f"query:      {query} of {pipeline}, failed{often or ' once'}",
            f"batch:      {batch}",
            f"what:       {failure.what}",
            f"why:        {failure.why}",
            f"what to do: {failure.advice.do}",
        )


def explain(error: BaseException) -> Failure:
    text = str(getattr(error, "desc", None) or error).partition("=== Streaming Query ===")[0]
    cause = _cause(error, text)
    place = "" if cause.is_ours else _place(text)
    why = redacted(_FAILED_QUERY.sub("", cause.why).strip())[:_CHARACTERS_MAX] + place
    return Failure(_what(text, why), why, _advice(cause, text))


def message_of(error: BaseException) -> str:
    """One line, without secrets, and without the stacks and plans that Spark adds to it."""
    return explain(error).why


def _place(text: str) -> str:
    """The innermost line of a user's own function in a traceback."""
    frames = [each for each in _FRAME.finditer(text) if not _LIBRARY_FILE.search(each["file"])]
    if not frames:
        return ""
    return f" ({os.path.basename(frames[-1]['file'])}, line {frames[-1]['line']})"


class _Cause(NamedTuple):
    name: str
    """Of its class."""
    why: str
    is_ours: bool


def _cause(error: BaseException, text: str) -> _Cause:
    name = type(error).__name__
    if type(error).__module__.startswith(_OURS):
        return _Cause(name, _first_lines(text) or name, is_ours=True)
    raised = list(_raised(text))
    ours = [each for each in raised if each.is_ours]
    if ours:
        return ours[-1]
    by_user = [line for line in map(str.strip, text.splitlines()) if line.startswith("[USER_RAISED_EXCEPTION]")]
    if by_user:
        return _Cause(name, by_user[-1], is_ours=False)
    return raised[-1] if raised else _Cause(name, _first_lines(text) or name, is_ours=False)


def _raised(text: str) -> Iterator[_Cause]:
    """The exceptions that are named in a text, from the outermost to the cause."""
    for line in map(str.strip, text.splitlines()):
        matched = _RAISED.match(line)
        if matched is None:
            continue
        module, _, name = matched["name"].rpartition(".")
        if matched["name"].startswith(_OURS):
            yield _Cause(name, matched["message"] or name, is_ours=True)
        elif (module or name.endswith(_BUILT_IN)) and not _WRAPPERS.match(matched["name"]):
            message = matched["message"] or ""
            why = message if _CONDITION.match(message) else f"{matched['name']}: {message}".removesuffix(": ")
            yield _Cause(name, why, is_ours=False)


def _first_lines(text: str) -> str:
    """Behind the first line of an error of Spark come plans."""
    stripped = (line.strip() for line in text.splitlines())
    lines = [line for line in stripped if line and not line.startswith("at ")]
    return " ".join(lines[: 1 if lines and _CONDITION.match(lines[0]) else 3])


def _advice(cause: _Cause, text: str) -> Advice:
    if cause.is_ours and cause.name != "StepFailed":
        denied = cause.name == "KafkaError" and any(code in cause.why.partition(":")[0] for code in _DENIED)
        return BY_CLASS["NotAuthorized"] if denied else BY_CLASS.get(cause.name, UNKNOWN)
    for condition in _CONDITION.finditer(text):
        for begin, advice in BY_CONDITION:
            if condition["condition"].startswith(begin):
                return advice
    if cause.is_ours:
        return _BAD_STEP if _CONDITION.search(cause.why) else _FAILED_STEP
    fallback = _FAILED_STEP if "Traceback (most recent call last)" in text else UNKNOWN
    return OF_OTHERS.get(cause.name, fallback)


_STARTING = re.compile(r"An error occurred while calling o\d+\.start\.")
_PLANNING = ("latestOffset", "initialOffset", "prepareForTriggerAvailableNow", "planPartitions")


def _what(text: str, why: str) -> str:
    sink = re.match(r'sink "(?P<name>[^"]+)"', why)
    if sink is not None:
        return f'writing to sink "{sink["name"]}"'
    step = re.match(r'step "(?P<name>[^"]+)"', why)
    if step is not None:
        return f'computing step "{step["name"]}"'
    if "STATE_STORE" in text or "STATEFUL_OPERATOR" in text:
        return "continuing from its state"
    if _STARTING.search(text):
        return "starting from its checkpoint"
    if any(word in text for word in _PLANNING):
        return "finding the records to read"
    if "data source write" in text or "DATA_SOURCE_WRITE" in text or "StreamWriter" in text:
        return "writing records to topics"
    if "sink.brokers" in text or "/sink/brokers.py" in text or "/sink/writer.py" in text:
        return "writing records to topics"
    return "computing or writing the batch"
