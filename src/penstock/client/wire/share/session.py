"""The share session with one broker: the requests to send, and what their answers mean for the session.

A session begins with epoch 0, and each request has the next one. The broker remembers its partitions: a request names
those that are new, those that are acknowledged, and those to forget. Records that were acquired in a session can be
acknowledged only in the same session; if the broker has lost it, it has released them.

One request at a time: a request that overtook another would have the wrong epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, TypeVar

from penstock.client.wire.share.acknowledgements import Place, Range, acknowledge_batches, fetch_batches
from penstock.model.errors import ErrorCode
from penstock.model.ids import Uuid
from penstock.protocol.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from penstock.protocol.messages.share_fetch import FetchPartition, FetchTopic, ForgottenTopic, ShareFetchRequest

FIRST: Final = 0
FINAL: Final = -1
_EPOCH_MAX: Final = 2**31 - 1
_LOST: Final = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})
BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1

Item = TypeVar("Item")


class ShareSession:
    def __init__(self, group: str, member_id: str) -> None:
        self._group = group
        self._member_id = member_id
        self.epoch = FIRST
        self._partitions: set[Place] = set()

    @property
    def is_open(self) -> bool:
        return self.epoch != FIRST

    def fetch(
        self,
        partitions: Collection[Place],
        acknowledged: Mapping[Place, list[Range]],
        *,
        max_wait_ms: int,
        max_bytes: int,
        max_records: int,
        acquire_mode: int,
    ) -> ShareFetchRequest:
        wanted = set(partitions)
        named = {place: fetch_batches(acknowledged.get(place, [])) for place in wanted - self._partitions}
        named.update({place: fetch_batches(ranges) for place, ranges in acknowledged.items()})
        forgotten = self._partitions - wanted
        self._partitions = wanted
        return ShareFetchRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self.epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            max_records=max_records,
            batch_size=max_records,
            share_acquire_mode=acquire_mode,
            topics=[
                FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        FetchPartition(partition_index=place.partition, acknowledgement_batches=named[place])
                        for place in places
                    ],
                )
                for topic_id, places in _by_topic(named).items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id, partitions=[place.partition for place in places])
                for topic_id, places in _by_topic(forgotten).items()
            ],
        )

    def acknowledge(
        self, acknowledged: Mapping[Place, list[Range]], *, renews: bool = False, closes: bool = False
    ) -> ShareAcknowledgeRequest:
        """Make a request that only acknowledges; `closes`: it ends the session, which releases everything else."""
        return ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=FINAL if closes else self.epoch,
            is_renew_ack=renews,
            topics=[
                AcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=[
                        AcknowledgePartition(
                            partition_index=place.partition,
                            acknowledgement_batches=acknowledge_batches(acknowledged[place]),
                        )
                        for place in places
                    ],
                )
                for topic_id, places in _by_topic(acknowledged).items()
            ],
        )

    def answered(self, error_code: int) -> None:
        """The last request was answered. After an error of the whole request the session begins anew."""
        if error_code:
            self.reset()
        else:
            self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1

    def reset(self) -> None:
        self.epoch = FIRST
        self._partitions = set()

    @staticmethod
    def is_lost(error_code: int) -> bool:
        """Whether the error only says that the broker does not know the session any more."""
        return error_code in _LOST


def _by_topic(places: Collection[Place]) -> dict[Uuid, list[Place]]:
    topics: dict[Uuid, list[Place]] = {}
    for place in sorted(places):
        topics.setdefault(place.topic_id, []).append(place)
    return topics
