"""`penstock consume --share`: print records as a worker of a share group."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from penstock.cli.output import note
from penstock.cli.reading import Interruption

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.client.wire.share.records import ShareRecord

_POLL_S = 0.2


class _Shown:
    """A record with the methods of librdkafka's messages, for the formats of `consume`."""

    def __init__(self, record: ShareRecord) -> None:
        self._record = record

    def key(self) -> bytes | None:
        return self._record.key

    def value(self) -> bytes | None:
        return self._record.value

    def topic(self) -> str:
        return self._record.topic

    def partition(self) -> int:
        return self._record.partition

    def offset(self) -> int:
        return self._record.offset

    def timestamp(self) -> tuple[int, int]:
        return 1, self._record.timestamp

    def headers(self) -> list[tuple[str, bytes | None]]:
        return [(str(name), value) for name, value in self._record.headers]


def consume_share(
    bootstrap_server: str,
    topic: str,
    group: str,
    render: Callable[[Any], bytes],
    *,
    max_messages: int | None,
    timeout: float | None,
) -> None:
    """Print records, and accept each when it is written and flushed."""
    from penstock.client.wire.share.consumer import ShareConsumer

    interruption = Interruption()
    printed = 0
    with (
        interruption.caught(),
        ShareConsumer(bootstrap_server, topic, group=group, max_records=max_messages) as consumer,
    ):
        quiet_since = time.monotonic()
        while max_messages is None or printed < max_messages:
            interruption.raise_if_any()
            records = consumer.batch(timeout=_POLL_S) if max_messages is None else [consumer.poll(_POLL_S)]
            shown = [record for record in records if record is not None]
            for record in shown:
                sys.stdout.buffer.write(render(_Shown(record)))
            sys.stdout.buffer.flush()
            printed += len(shown)
            if shown:
                quiet_since = time.monotonic()
            elif timeout is not None and time.monotonic() - quiet_since >= timeout:
                return
    if consumer.refused:
        note(f"{consumer.refused} records took too long, and are delivered again")
