"""The audit log: who was refused what, and who changed the cluster.

The lines go to the logger `penstock.audit`, in Kafka's words; with `penstock.log.format=json` each also has its fields
as an object. A client that keeps trying would fill the log: of equal refusals, one line per period is written, which
says how many were left out. The table of refusals is bounded; the oldest entries are dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from penstock.protocol.apis import API
from penstock.security.acl_authorizer import Refusal
from penstock.security.acls import Acl
from penstock.security.principal import Principal

logger = logging.getLogger("penstock.audit")

SECONDS_EACH: Final = 10.0
KINDS_MAX: Final = 1000
NAMES_MAX: Final = 20


class Audit:
    def __init__(self, now: Callable[[], float]) -> None:
        """`now`: a clock in seconds, with any origin."""
        self._now = now
        # For each kind of refusal, when it was last written and how many were left out since.
        self._refusals: dict[Refusal, tuple[float, int]] = {}

    def refused(self, refusal: Refusal) -> None:
        now = self._now()
        written_at, left_out = self._refusals.pop(refusal, (now - SECONDS_EACH, 0))
        if now - written_at < SECONDS_EACH:
            self._refusals[refusal] = (written_at, left_out + 1)
            return
        if len(self._refusals) >= KINDS_MAX:
            del self._refusals[next(iter(self._refusals))]
        self._refusals[refusal] = (now, 0)
        principal, host, operation, resource, api_key, reason = refusal
        fields: dict[str, object] = {
            "event": "refused",
            "principal": str(principal),
            "host": host,
            "operation": operation.name,
            "resource_type": resource.kind.name,
            "resource": resource.name,
            "request": API[api_key].name,
            "rule": str(reason),
            "left_out": left_out,
        }
        logger.info(
            "Principal = %s is Denied operation = %s from host = %s on resource = %s:LITERAL:%s for request = %s "
            "based on rule %s%s",
            printable(str(principal)),
            operation.name,
            host,
            resource.kind.name,
            printable(resource.name),
            API[api_key].name,
            printable(f"MatchingAcl(acl={reason})") if isinstance(reason, Acl) else reason,
            f" ({left_out} such lines were left out)" if left_out else "",
            extra={"audit": fields},
        )


def changed(principal: Principal, host: str, api_key: int, names: list[str]) -> None:
    """A client changed the cluster: `names` are the resources it named. Values are not logged: some are secret."""
    shown = names if len(names) <= NAMES_MAX else [*names[:NAMES_MAX], f"and {len(names) - NAMES_MAX} more"]
    fields: dict[str, object] = {
        "event": "changed",
        "principal": str(principal),
        "host": host,
        "request": API[api_key].name,
        "resources": shown,
    }
    logger.info(
        "Principal = %s from host = %s changed the cluster by request = %s of %s",
        printable(str(principal)),
        host,
        API[api_key].name,
        printable(", ".join(shown)),
        extra={"audit": fields},
    )


def printable(text: str) -> str:
    """Names come from clients: a line break in one must not begin a line of the log."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
