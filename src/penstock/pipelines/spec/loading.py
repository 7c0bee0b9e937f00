"""Loads a pipeline from a file."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping as Pairs
from dataclasses import dataclass
from typing import Any

from penstock.pipelines.spec import documents
from penstock.pipelines.spec.binding import Binder, Places
from penstock.pipelines.spec.documents import Entry, Mapping, Scalar
from penstock.pipelines.spec.durations import Duration
from penstock.pipelines.spec.environments import Resolution, environment_names
from penstock.pipelines.spec.model import FILE_NAMES, Pipeline
from penstock.pipelines.spec.problems import Location, PipelineInvalid, Problem, in_order
from penstock.pipelines.spec.secrets import Secret


@dataclass(frozen=True, slots=True)
class Loaded:
    """A pipeline of one environment, and the positions of its parts."""

    pipeline: Pipeline
    places: Places
    file: str
    """As the caller named it."""
    environment: str | None
    problems: tuple[Problem, ...] = ()
    """The errors of its fields; the rest of the pipeline can still be checked."""

    @property
    def directory(self) -> str:
        return os.path.dirname(os.path.abspath(self.file))


def read(file: str) -> Mapping:
    """The document of a file; OSError if it cannot be read, PipelineInvalid if it is not YAML."""
    with open(file, "rb") as opened:
        data = opened.read()
    try:
        return documents.parse(data.decode("utf-8-sig"), file)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        at = Location(line, error.start - data.rfind(b"\n", 0, error.start))
        raise PipelineInvalid([Problem("not text in UTF-8; save the file as UTF-8", (), at, file)]) from None


def environments(document: Mapping) -> list[str | None]:
    """None for the file itself, and the name of each of its environments."""
    return [None, *environment_names(document)]


def bind(document: Mapping, file: str, environment: str | None = None, given: Pairs[str, str] | None = None) -> Loaded:
    resolved = Resolution(document, file, environment, given or {})
    binder = Binder(file)
    pipeline = binder.bind(Pipeline, _long_parameters(resolved.document))
    problems = in_order([*resolved.problems, *binder.problems])
    if pipeline is None:
        raise PipelineInvalid(problems)
    return Loaded(pipeline, binder.places, file, environment, tuple(problems))


def load(file: str, environment: str | None = None, given: Pairs[str, str] | None = None) -> Loaded:
    """A pipeline with valid fields; otherwise PipelineInvalid with all errors."""
    loaded = bind(read(file), file, environment, given)
    if loaded.problems:
        raise PipelineInvalid(loaded.problems)
    return loaded


def _long_parameters(document: Mapping) -> Mapping:
    """`minimum: 3` among the parameters stands for `minimum: {type: int, default: 3}`."""
    section = document.entries.get("parameters")
    if section is None or not isinstance(section.value, Mapping):
        return document
    long: dict[str, Entry] = {}
    for name, entry in section.value.entries.items():
        if isinstance(entry.value, Scalar):
            default = Mapping({"default": Entry(entry.value.location, entry.value)}, entry.value.location)
            entry = Entry(entry.key, default)
        long[name] = entry
    parameters = Entry(section.key, Mapping(long, section.value.location))
    return Mapping({**document.entries, "parameters": parameters}, document.location)


def dumped(pipeline: Pipeline) -> str:
    """A file that loads to the same pipeline; steps that are functions cannot be written."""
    return documents.dumped(_plain(pipeline))


def _plain(value: Any, raw: bool = False) -> Any:
    if isinstance(value, (Duration, Secret)):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        made = {}
        for each in dataclasses.fields(value):
            given = getattr(value, each.name)
            default = each.default_factory() if each.default_factory is not dataclasses.MISSING else each.default
            if given != default:
                raw = each.name in ("parameters", "environments")  # `${` is plain text there
                made[FILE_NAMES.get(each.name, each.name)] = _plain(given, raw)
        return made
    if isinstance(value, dict):
        return {name: _plain(each, raw) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each, raw) for each in value]
    if isinstance(value, str):
        return value if raw else value.replace("${", "$${")
    if callable(value):
        raise TypeError(f"{value!r} has no form in a file; name it as module:function")
    return value
