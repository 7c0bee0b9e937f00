"""One request for a page: who asks, for what, and what is known of the cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from penstock.console.observe.records import TopicReader
from penstock.console.pages.layout import Frame, Page
from penstock.console.server.backfills import Backfills
from penstock.console.server.workspace import Workspace
from penstock.console.settings import ConsoleSettings
from penstock.console.views.boards import Board
from penstock.console.views.decoding import SchemaDecoder
from penstock.console.views.masking import MaskRule, paths_for
from penstock.console.views.sample import Seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    settings: ConsoleSettings
    workspace: Workspace
    seen: Seen
    path: Mapping[str, str]
    """The variable parts of the address."""
    parameters: Mapping[str, str]
    frame: Frame
    rules: tuple[MaskRule, ...] = ()
    schema: SchemaDecoder | None = None
    boards: tuple[Board, ...] = ()
    backfills: Backfills = field(default_factory=Backfills)
    draft: str | None = None
    """What was typed into a form of this page that was refused."""
    live: bool = False
    """Only the live parts are wanted: nothing is asked of the cluster."""
    is_over: Callable[[], bool] = lambda: False
    """Whether the session has ended since: a stream must not go on."""

    def reader(self, topic: str) -> TopicReader:
        return TopicReader(self.workspace.access, topic, paths_for(topic, self.rules), self.schema)


PageOf = Callable[[Visit], Awaitable[Page]]


class NotFound(Exception):
    """There is nothing at this address; the message says what was looked for."""
