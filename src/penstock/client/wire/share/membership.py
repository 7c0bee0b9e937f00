"""The membership in a share group: a thread that sends heartbeats, and the partitions that the group assigns.

The thread has its own connections, so heartbeats go on while the application is busy with a record. The assignment is
replaced as a whole; readers need no lock.

A member that is fenced or unknown joins again under the same id. While it has no partitions it asks more often: the
group's first partitions are assigned a moment after it has joined.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.client.errors import ClientError, TimedOut, Unreachable, raise_for
from penstock.client.wire.cluster import MOVING, Cluster, CoordinatorType
from penstock.client.wire.share.acknowledgements import Place
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

JOINING: Final = 0
LEAVING: Final = -1
_RETRY_S: Final = 0.1
# How often a member without partitions asks for some, and for how many times.
_EAGER_S: Final = 0.2
_EAGER_TIMES: Final = 50
_JOIN_AGAIN: Final = frozenset(
    {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}
)


class ShareMembership:
    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: Sequence[str],
        *,
        timeout: float,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.group = group
        self.member_id = str(uuid.uuid4())
        self.assignment: frozenset[Place] = frozenset()
        self.changed = threading.Event()
        self._topics = list(topics)
        self._timeout = timeout
        self._cluster = Cluster(bootstrap, timeout=timeout, options=options)
        self._coordinator: int | None = None
        self._epoch = JOINING
        self._eager = _EAGER_TIMES
        self._failure: Exception | None = None
        self._leaves = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"penstock-share-{group}", daemon=True)

    def join(self) -> None:
        """Join the group; heartbeats follow. KafkaError or ClientError if that is refused or no broker answers."""
        deadline = time.monotonic() + self._timeout
        try:
            while (interval := self._try_to_join(time.monotonic() < deadline)) is None:
                time.sleep(_RETRY_S)
        except BaseException:
            self._cluster.close()
            raise
        self._interval = interval
        self._thread.start()

    def _try_to_join(self, may_fail: bool) -> float | None:
        """Return the seconds until the first heartbeat; None if the coordinator is moving or dying."""
        try:
            return self._beat()
        except (Unreachable, TimedOut):
            if not may_fail:
                raise
        except KafkaError as error:
            if not may_fail or error.code not in MOVING:
                raise
        self._coordinator = None
        return None

    def check(self) -> None:
        """Raise what ended the membership."""
        if self._failure is not None:
            raise self._failure

    def leave(self) -> None:
        """Leave the group. A group whose coordinator cannot be reached removes the member when its session ends."""
        self._leaves.set()
        if self._thread.ident is not None:
            self._thread.join()
        try:
            if self._epoch > 0:
                self._send(LEAVING)
        except (ClientError, KafkaError):
            return
        finally:
            self._cluster.close()

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        wait = self._interval
        while not self._leaves.wait(wait):
            try:
                wait = self._beat()
            except (Unreachable, TimedOut):
                self._coordinator = None
                wait = _RETRY_S
            except KafkaError as error:
                if error.code in _JOIN_AGAIN and self._epoch != JOINING:
                    self._epoch = JOINING
                    self._assigned(frozenset())
                elif error.code not in MOVING:
                    self._end(error)
                    return
                self._coordinator = None
                wait = _RETRY_S
            except ClientError as error:
                self._end(error)
                return

    def _end(self, error: Exception) -> None:
        self._failure = error
        self._assigned(frozenset())

    def _beat(self) -> float:
        """Send one heartbeat; return the seconds until the next."""
        answer = self._send(self._epoch)
        raise_for(answer.error_code, answer.error_message, f"group {self.group!r}")
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self._assigned(
                frozenset(
                    Place(topic.topic_id, index)
                    for topic in answer.assignment.topic_partitions
                    for index in topic.partitions
                )
            )
        interval = answer.heartbeat_interval_ms / 1000
        if self.assignment:
            self._eager = _EAGER_TIMES
        elif self._eager:
            self._eager -= 1
            return min(interval, _EAGER_S)
        return interval

    def _send(self, epoch: int) -> ShareGroupHeartbeatResponse:
        if self._coordinator is None:
            # The cluster outlives the brokers it was found through.
            known = self._cluster.bootstrap
            known += {(each.host, each.port) for each in self._cluster.metadata([]).brokers}.difference(known)
            (self._coordinator,) = self._cluster.coordinators(CoordinatorType.GROUP, [self.group])
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            subscribed_topic_names=self._topics if epoch == JOINING else None,
        )
        return self._cluster.request_broker(self._coordinator, request, ShareGroupHeartbeatResponse)

    def _assigned(self, assignment: frozenset[Place]) -> None:
        if assignment != self.assignment:
            self.assignment = assignment
            self.changed.set()
