"""One request: who asks, in which context, about what; and its way to the writer if it changes something."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from penstock.registry.core.candidate import Candidate, Parser, read_candidate
from penstock.registry.core.decision import Decision
from penstock.registry.core.errors import RegistryError
from penstock.registry.core.names import checked, in_context, parse_subject
from penstock.registry.core.state import State
from penstock.registry.node import NotTheWriter, RegistryNode
from penstock.registry.web.forwarding import FORWARDED, OFFSET, ForwardedResponse, NotAnswered, NotSent, forward
from penstock.registry.web.messages import answer, parse_body, read_body
from penstock.registry.web.roles import Role, Roles

Result = TypeVar("Result")

WRITER_WAIT_S: Final = 30.0
_FORWARD_S: Final = 10.0
_PAUSE_S: Final = 0.1


@dataclass(slots=True)
class Call:
    node: RegistryNode
    request: Request
    parameters: tuple[str, ...]  # from the path
    context: str  # of the base URL
    user: str | None
    roles: Roles | None  # None: everybody may do everything
    forward_tls: ssl.SSLContext | None
    body: bytes = b""

    @property
    def state(self) -> State:
        return self.node.state

    def subject(self, index: int = 0) -> str:
        """The subject in the path; an alias leads to another one."""
        subject = checked(in_context(self.context, self.parameters[index]))
        alias = self.state.configs.get(subject, {}).get("alias")
        return in_context(parse_subject(subject).context, alias) if isinstance(alias, str) and alias else subject

    def scope(self) -> str | None:
        """What a request about settings means: a subject, a context, or (None) the default context."""
        given = self.parameters[0] if self.parameters else ""
        subject = checked(in_context(self.context, given), or_context=True)
        return subject or None

    def asked_subject(self) -> str | None:
        """The parameter `subject` of requests by id, or the context of the base URL."""
        given = self.request.query_params.get("subject") or ""
        found = in_context(self.context, given)
        return found or None

    def may(self, role: Role, subject: str | None) -> bool:
        return self.roles is None or self.roles.allows(self.user or "", role, subject or "")

    def require(self, role: Role, subject: str | None) -> None:
        if not self.may(role, subject):
            what = f"subject {subject}" if subject else "all subjects"
            raise RegistryError(40301, f"User {self.user} is denied {role.name.lower()} on {what}")

    async def content(self) -> Any:
        self.body = await read_body(self.request)
        return parse_body(self.body)

    async def candidate(self) -> Candidate:
        return read_candidate(await self.content())

    async def examine(self, question: Callable[[State, Parser], Result]) -> Result:
        return await self.node.examine(question)

    async def write(self, decide: Callable[[State, Parser], Decision], *, repeatable: bool = False) -> Response:
        """Decide and write here if this node is the writer, else have the writer do it.

        While a writer is being elected, the request waits. A request that may have been executed is tried again only if
        it is `repeatable`: doing it twice is the same as doing it once.
        """
        deadline = time.monotonic() + WRITER_WAIT_S
        while True:
            if self.node.is_writer:
                try:
                    written = await self.node.write(decide)
                    response = answer(written.answer)
                    response.headers[OFFSET] = str(written.offset)
                    return response
                except NotTheWriter as reason:
                    if reason.__cause__ is not None and not repeatable:
                        raise RegistryError(
                            50001, "Error while writing to the topic; it may have been done"
                        ) from reason
            elif self.node.elsewhere is not None:
                passed = await self._forward(repeatable)
                if passed is not None:
                    return passed
            if time.monotonic() > deadline:
                raise RegistryError(50004, "Leader not known.")
            await self.node.changed(_PAUSE_S)

    async def _forward(self, repeatable: bool) -> Response | None:
        """The writer's answer; None if the request should be tried again."""
        if FORWARDED in self.request.headers:
            raise RegistryError(50004, "Leader not known.")  # the node that forwarded it looks for another
        writer = self.node.elsewhere
        assert writer is not None
        scope = self.request.scope
        target = (scope.get("raw_path") or b"/").decode("latin-1")
        if scope.get("query_string"):
            target += "?" + scope["query_string"].decode("latin-1")
        try:
            passed = await asyncio.to_thread(
                forward,
                writer,
                self.request.method,
                target,
                self.request.headers,
                self.body,
                tls=self.forward_tls,
                timeout=_FORWARD_S,
            )
        except NotSent:
            return None
        except NotAnswered as error:
            if repeatable:
                return None
            raise RegistryError(50003, f"Error while forwarding the request to the leader: {error}") from error
        if passed.status == 500 and b'"error_code":50004' in passed.body:
            return None
        return await self._returned(passed)

    async def _returned(self, passed: ForwardedResponse) -> Response:
        if passed.offset is not None:
            await self.node.reached(passed.offset)
        return Response(passed.body, passed.status, headers={"content-type": passed.content_type})
