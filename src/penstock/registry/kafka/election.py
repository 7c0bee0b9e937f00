"""The election of the writer: a classic group of the cluster, as Confluent's registry has it.

The nodes are members of a group with the protocol type `sr`; each sends its address as metadata. The coordinator makes
one of them the group's leader, which names the writer in everyone's assignment: the node that is the writer already, or
else the first by member id. A node that stops sending heartbeats is removed after the session timeout, and the others
elect again.

The election says who should write. The producer epoch makes sure that no other node does (see `writer`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from penstock.client.errors import raise_for
from penstock.client.wire.closing import Closing
from penstock.client.wire.cluster import Cluster, CoordinatorType
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.apis import ApiKey
from penstock.protocol.declaration import Message
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from penstock.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

Response = TypeVar("Response", bound=Message)

PROTOCOL_TYPE: Final = "sr"
_PROTOCOL: Final = "v0"
_VERSION: Final = 1
_NO_ERROR, _DUPLICATE_URLS = 0, 1
_REQUEST_MARGIN_S: Final = 5.0
_LEAVE_S: Final = 1.0
_MANY_LEAVE_SINCE: Final = 3


@dataclass(frozen=True, slots=True)
class Identity:
    """Where other nodes reach a node."""

    host: str
    port: int
    scheme: str = "http"

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def content(self) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "host": self.host,
            "port": self.port,
            "master_eligibility": True,
            "scheme": self.scheme,
        }


@dataclass(frozen=True, slots=True)
class Elected:
    """The result of an election. `writer` is None if no member may write."""

    writer: Identity | None
    is_mine: bool


class Rejoin(Exception):
    """The group elects again."""


class Removed(Rejoin):
    """The group has elected without this member, which was silent for too long: it is not what it was before."""


class Membership(Closing):
    """This node's place in the group. The methods are called one after the other, in any thread."""

    def __init__(self, bootstrap: str, group: str, identity: Identity, *, session_s: float) -> None:
        # JoinGroup is answered when all members have joined, or the session timeout has passed.
        self._cluster = Cluster(bootstrap, timeout=session_s + _REQUEST_MARGIN_S)
        self._group = group
        self._identity = identity
        self._session_ms = int(session_s * 1000)
        self._member_id = ""
        self._generation = -1
        self._coordinator: int | None = None
        self._busy = threading.Lock()  # a thread may still wait for an election when the node is stopped

    def close(self) -> None:
        self._cluster.close()

    def join(self, *, is_writer: bool) -> Elected:
        """Take part in an election; returns when all members have. Rejoin if it was overtaken by the next one."""
        joined = self._join(is_writer)
        self._member_id, self._generation = joined.member_id, joined.generation_id
        assignments = []
        if joined.leader == joined.member_id:
            assignment = _assignment(joined.members)
            assignments = [
                SyncGroupRequestAssignment(member_id=each.member_id, assignment=assignment) for each in joined.members
            ]
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=_PROTOCOL,
            assignments=assignments,
        )
        synced = self._ask(request, SyncGroupResponse)
        self._check(synced.error_code, "cannot take part in the election")
        return self._elected(synced.assignment)

    def heartbeat(self) -> None:
        """Rejoin if the group elects again, Removed if it has done so without this member."""
        request = HeartbeatRequest(group_id=self._group, generation_id=self._generation, member_id=self._member_id)
        self._check(self._ask(request, HeartbeatResponse).error_code, "cannot stay in the group")

    def leave(self) -> None:
        """Leave, so that the others elect at once; not if an election is under way."""
        if not self._member_id or not self._busy.acquire(timeout=_LEAVE_S):
            return
        self._busy.release()
        request = LeaveGroupRequest(group_id=self._group, member_id=self._member_id, members=[])
        if self._cluster.version(ApiKey.LEAVE_GROUP) >= _MANY_LEAVE_SINCE:
            request.members, request.member_id = [MemberIdentity(member_id=self._member_id)], ""
        self._ask(request, LeaveGroupResponse)
        self._member_id = ""

    def _join(self, is_writer: bool) -> JoinGroupResponse:
        content = {**self._identity.content(), "leader": is_writer}
        for _ in range(2):
            request = JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=self._session_ms,
                rebalance_timeout_ms=self._session_ms,
                member_id=self._member_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=[JoinGroupRequestProtocol(name=_PROTOCOL, metadata=json.dumps(content).encode())],
            )
            joined = self._ask(request, JoinGroupResponse)
            if joined.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                break
            self._member_id = joined.member_id
        self._check(joined.error_code, "cannot join the group of registries")
        return joined

    def _elected(self, assignment: bytes) -> Elected:
        content = json.loads(assignment or b"{}")
        if content.get("error") == _DUPLICATE_URLS:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"two registries of the group {self._group} have the address {self._identity.url}: give each its own "
                "with --advertised",
            )
        named = content.get("master_identity")
        if not named:
            return Elected(None, False)
        writer = Identity(str(named["host"]), int(named["port"]), str(named.get("scheme") or "http"))
        return Elected(writer, content.get("master") == self._member_id)

    def _check(self, error_code: int, about: str) -> None:
        if error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._member_id = ""
            raise Removed
        if error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            raise Rejoin
        if error_code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._coordinator = None
        raise_for(error_code, None, f"group {self._group}: {about}")

    def _ask(self, message: Message, response: type[Response]) -> Response:
        """Ask the coordinator. After a failure it is looked for again, because it may have moved."""
        with self._busy:
            if self._coordinator is None:
                (self._coordinator,) = self._cluster.coordinators(CoordinatorType.GROUP, [self._group])
            try:
                return self._cluster.request_broker(self._coordinator, message, response)
            except BaseException:
                self._coordinator = None
                raise


def _assignment(members: Sequence[JoinGroupResponseMember]) -> bytes:
    known = sorted(((each.member_id, json.loads(each.metadata)) for each in members), key=lambda each: each[0])
    eligible = [(member, content) for member, content in known if content.get("master_eligibility", True)]
    addresses = [(content.get("host"), content.get("port")) for _, content in known]
    if len(set(addresses)) < len(addresses):
        return json.dumps({"version": _VERSION, "error": _DUPLICATE_URLS}).encode()
    if not eligible:
        return json.dumps({"version": _VERSION, "error": _NO_ERROR}).encode()
    member, content = next((each for each in eligible if each[1].get("leader")), eligible[0])
    named = {name: value for name, value in content.items() if name != "leader"}
    return json.dumps({"version": _VERSION, "error": _NO_ERROR, "master": member, "master_identity": named}).encode()
