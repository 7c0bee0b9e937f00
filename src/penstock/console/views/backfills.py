"""A backfill as a form asks for it, and the command that runs it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from penstock.client.errors import ClientError
from penstock.pipelines.operate.backfill import check_points, parse_point

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SUFFIX = re.compile(r"[A-Za-z0-9._-]{0,40}")
_TEXT_MAX = 2_000


class BadBackfill(ValueError):
    """The form makes no sense; the message says why."""


@dataclass(frozen=True, slots=True)
class WantedBackfill:
    name: str
    begin: str
    end: str = ""
    suffix: str = ""

    def arguments(self, file: str, bootstrap: str, environment: str | None) -> list[str]:
        """Of `penstock`. Every value is part of one word, so that none is taken for an option."""
        given = [
            ("--from", self.begin),
            ("--to", self.end),
            ("--as", self.name),
            ("--output-suffix", self.suffix),
            ("--env", environment or ""),
            ("--bootstrap-server", bootstrap),
        ]
        return ["pipeline", "run", *(f"{option}={value}" for option, value in given if value), "--", file]


def parse_backfill(form: Mapping[str, str], now: datetime) -> WantedBackfill:
    name, begin, end, suffix = (form.get(field, "").strip() for field in ("as", "from", "to", "suffix"))
    if not _NAME.fullmatch(name):
        raise BadBackfill("give the backfill a name of its own: letters, digits, dots, dashes")
    if name == form.get("name"):
        raise BadBackfill(f"{name} is the pipeline itself; a backfill needs a name of its own")
    if not _SUFFIX.fullmatch(suffix):
        raise BadBackfill("a suffix has letters, digits, dots, dashes")
    if not begin or len(begin) > _TEXT_MAX or len(end) > _TEXT_MAX:
        raise BadBackfill("say where it begins: earliest, offset:1000, a time")
    try:
        check_points(parse_point("--from", begin, now), parse_point("--to", end, now) if end else None)
    except ClientError as error:
        raise BadBackfill(str(error)) from error
    return WantedBackfill(name, begin, end, suffix)
