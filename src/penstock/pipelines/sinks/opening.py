"""Creates the sink objects for the sinks in a pipeline's file."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points

from penstock.pipelines.sinks.destination import Destination, Sink
from penstock.pipelines.spec.model import FormatSink
from penstock.pipelines.spec.paths import resolve
from penstock.pipelines.spec.problems import PipelineFailed
from penstock.pipelines.spec.secrets import plain
from penstock.pipelines.spec.sink_formats import ANY_FORMAT, GROUP, SINK_FORMATS, missing_package


def open_sink(
    sink: FormatSink,
    name: str,
    pipeline: str,
    query: str,
    directory: str,
    *,
    checkpoint: str = "",
    refusals: bool = False,
) -> Sink:
    destination = Destination(
        pipeline,
        query,
        name,
        resolve(sink.path, directory) if sink.path else "",
        sink.partition_by,
        plain(sink.options),
        format=sink.format,
        table=sink.table,
        key=sink.key,
        history=sink.history,
        history_time=sink.history_time,
        refusals=refusals,
        roll_bytes=sink.roll_bytes,
        roll_seconds=sink.roll_every.seconds if sink.roll_every is not None else None,
        checkpoint=checkpoint,
    )
    for found in entry_points(group=GROUP, name=sink.format):
        made: Sink = found.load()(destination)
        return made
    if missing := missing_package(sink.format):
        raise PipelineFailed(f'sink "{name}": {missing}')
    module, _, own = SINK_FORMATS.get(sink.format, ANY_FORMAT).home.partition(":")
    opened: Sink = getattr(import_module(f"{__package__}.{module}"), own)(destination)
    return opened
