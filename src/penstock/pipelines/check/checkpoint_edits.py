"""Decides what an edit of a pipeline means for its checkpoints.

A checkpoint contains the offsets up to which a query has read its sources, and the state of its aggregates and joins.
Both are valid only for the query that wrote them. Every difference between that query and its present form is an
`Edit`, with one of three verdicts:

- *safe*: the query continues, and the edit applies from the next batch.
- *new checkpoint*: the state, or the list of sources, does not fit. The query must start again, under another name.
- *refused*: the offsets would be applied to other data: rows would be omitted or read twice, without any error.

If the effect of an edit on state is unknown, it needs a new checkpoint. A new checkpoint means a new name, never an
empty directory under the old one: exactly-once sinks identify batches by the name and their number, and would skip
those whose numbers they have seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from penstock.pipelines.check.checkpoint_shape import QueryShape, SourceShape, StepShape
from penstock.pipelines.check.state_types import state_types
from penstock.pipelines.spec import sql
from penstock.pipelines.spec.problems import Path

Verdict = Literal["safe", "new checkpoint", "refused"]
VERDICTS: tuple[Verdict, ...] = ("safe", "new checkpoint", "refused")
"""From the best to the worst."""


@dataclass(frozen=True, slots=True)
class Edit:
    verdict: Verdict
    message: str
    path: Path


def worst(edits: list[Edit]) -> Verdict:
    return max((edit.verdict for edit in edits), key=VERDICTS.index, default="safe")


def compare(old: QueryShape, new: QueryShape, query: str) -> list[Edit]:
    """Every difference, in the order of the file."""
    edits = [*_sources(old, new, query), *_steps(old, new, query), *_sinks(old, new)]
    if worst(edits) == "safe" and state_types(old, new) != state_types(new, old):
        edits.append(Edit("new checkpoint", "its state would have other columns or types", _home(query, new)))
    return [replace(edit, message=sql.shown(edit.message)) for edit in edits]


def _sources(old: QueryShape, new: QueryShape, query: str) -> Iterator[Edit]:
    home = _home(query, new)
    if old.drive != new.drive:
        yield Edit("refused", f"it was read as {old.drive}, and the checkpoint has no other places", home)
    if len(old.sources) != len(new.sources):
        were, are = ", ".join(old.sources), ", ".join(new.sources)
        yield Edit("new checkpoint", f"it read {were}, and reads {are} now", home)
        return
    if set(old.sources) == set(new.sources) and list(old.sources) != list(new.sources):
        message = f"it read {', '.join(old.sources)} in this order, and Spark knows them by that"
        yield Edit("refused", message, home)
        return
    for (was, before), (name, after) in zip(old.sources.items(), new.sources.items(), strict=True):
        path: Path = ("sources", name)
        if was != name:
            yield Edit("safe", f'it was called "{was}"', path)
        yield from _source(before, after, _Columns(old, new, was), path)
    for name in (*old.lookups, *new.lookups):
        if old.lookups.get(name) != new.lookups.get(name):
            yield Edit("safe", f'the lookup "{name}" is read anew for every batch', _home(name, new))


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of a source, and the state that may be made of them."""

    old: QueryShape
    new: QueryShape
    source: str

    def matters(self, column: str, kind: str | None) -> bool:
        """Whether the state has other types if only this column has another one, comes or goes."""
        before = self.old.sources[self.source]
        columns = {name: each for name, each in before.columns.items() if name != column}
        if kind is not None:
            columns[column] = kind
        changed = replace(self.old, sources={**self.old.sources, self.source: replace(before, columns=columns)})
        return state_types(self.old, self.new) != state_types(changed, self.new)


def _source(old: SourceShape, new: SourceShape, columns: _Columns, path: Path) -> Iterator[Edit]:
    state = columns.old.state
    if old.kind != new.kind:
        yield Edit("refused", f"it was {old.kind}, and the checkpoint has places in that", path)
    elif old.place != new.place:
        yield _place(old, new, path)
    if old.cursor != new.cursor:
        yield Edit(
            "refused", f'its cursor was "{old.cursor}", and the checkpoint has values of that', (*path, "cursor")
        )
    if old.bootstrap != new.bootstrap:
        message = f"the address of its cluster was {old.bootstrap}: safe as long as it is the same cluster"
        yield Edit("safe", message, path)
    if old.decoding != new.decoding:
        yield Edit(
            "safe", f"its values were {old.decoding}: records that wait must be of the new form", (*path, "value")
        )
    for name in dict.fromkeys((*old.columns, *new.columns)):
        was, now = old.columns.get(name), new.columns.get(name)
        if was is not None and now is not None and was != now:
            matters = columns.matters(name, now)
            verdict: Verdict = "new checkpoint" if matters else "safe"
            yield Edit(verdict, f'column "{name}" was {was}{", and state is made of it" if matters else ""}', path)
        elif was != now:
            matters = columns.matters(name, now)
            verdict = "new checkpoint" if matters else "safe"
            come_or_gone = f'column "{name}" was {"added" if was is None else "removed"}'
            yield Edit(verdict, f"{come_or_gone}{', and state is made of all columns' if matters else ''}", path)
    if old.watermark_column != new.watermark_column:
        was = f'was "{old.watermark_column}"' if old.watermark_column else "is new"
        yield Edit("new checkpoint" if state else "safe", f"the column of its watermark {was}", (*path, "watermark"))
    elif old.watermark_delay != new.watermark_delay:
        message = f"its watermark's delay was {old.watermark_delay}: what is over stays so"
        yield Edit("safe", message, (*path, "watermark"))
    if old.expect != new.expect:
        yield Edit("safe", "what is expected of it has changed", path)


def _place(old: SourceShape, new: SourceShape, path: Path) -> Edit:
    were, are = ", ".join(old.place), ", ".join(new.place)
    if old.kind != "topics":
        return Edit("refused", f"its path was {were}, and the checkpoint has places in that", (*path, "path"))
    if set(old.place) < set(new.place):
        more = ", ".join(each for each in new.place if each not in old.place)
        return Edit("safe", f"{more} will be read from the beginning", (*path, "topic"))
    if set(old.place) == set(new.place):
        return Edit("safe", "its topics are in another order", (*path, "topic"))
    if set(new.place) < set(old.place):
        return Edit("new checkpoint", f"it read {were}, and the checkpoint has places in all of them", (*path, "topic"))
    return Edit("refused", f"it read {were}, and reads {are} now", (*path, "topic"))


def _steps(old: QueryShape, new: QueryShape, query: str) -> Iterator[Edit]:
    home = _home(query, new)
    state_changed = old.state != new.state
    if state_changed:
        yield Edit("new checkpoint", _state_message(old.state, new.state), home)
    if old.output_mode != new.output_mode:
        yield Edit("new checkpoint", f'its output was "{old.output_mode}"', (*home, "output"))
    for name in dict.fromkeys((*old.streamed, *new.streamed)):
        before, after = old.streamed.get(name), new.streamed.get(name)
        if before == after:
            continue
        if state_changed and before is not None and after is not None and before.state != after.state:
            continue
        if not old.state:
            yield Edit("safe", "it holds from the next batch on", _home(name, new))
        elif before is None or after is None:
            yield Edit("new checkpoint", f'step "{name}" {_come_or_gone(before)} before the state', _home(name, new))
        else:
            yield _before_state(before, after, _home(name, new))
    for name in dict.fromkeys((*old.batched, *new.batched)):
        if old.batched.get(name) != new.batched.get(name):
            yield Edit("safe", "it holds from the next batch on", _home(name, new))


def _before_state(old: StepShape, new: StepShape, path: Path) -> Edit:
    """Conditions may change, and columns may be added or removed. The expression of a column may not change, because
    its type may change with it."""
    if old.columns is None or new.columns is None:
        same = old.text == new.text
        return Edit("safe" if same else "new checkpoint", "state is made of its rows", path)
    changed = [name for name in old.columns if name in new.columns and old.columns[name] != new.columns[name]]
    if changed:
        message = f'column "{changed[0]}" is computed in another way, and state may be made of it'
        return Edit("new checkpoint", message, path)
    if old.frame != new.frame:
        return Edit("new checkpoint", "it reads in another way, and state is made of its rows", path)
    return Edit("safe", "it holds from the next batch on; what is in the state stays", path)


def _sinks(old: QueryShape, new: QueryShape) -> Iterator[Edit]:
    for name in dict.fromkeys((*old.sinks, *new.sinks)):
        was, now = old.sinks.get(name), new.sinks.get(name)
        path: Path = ("sinks", name) if now is not None else ("sinks",)
        if was is None:
            yield Edit("safe", "it gets what comes from the next batch on", path)
        elif now is None:
            yield Edit("safe", f'sink "{name}" is gone; what it wrote stays', path)
        elif was != now:
            yield Edit("safe", f"it wrote to {was}; what it wrote stays there", path)


def _state_message(old: list[str], new: list[str]) -> str:
    if not old or not new:
        return "it had no state" if not old else "it had state, and has none now"
    lost = [part for part in old if part not in new]
    return f"its state was made of: {lost[0] if lost else '; '.join(old)}"


def _come_or_gone(before: StepShape | None) -> str:
    return "has come" if before is None else "is gone"


def _home(name: str, shape: QueryShape) -> Path:
    """Its path in the file, if it is in the file."""
    for section, names in _sections(shape).items():
        if name in names:
            return (section, name)
    return ()


def _sections(shape: QueryShape) -> dict[str, Mapping[str, object]]:
    return {"sources": {**shape.sources, **shape.lookups}, "steps": {**shape.streamed, **shape.batched}}
