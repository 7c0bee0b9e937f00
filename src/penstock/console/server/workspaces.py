"""The workspaces of a console: one for everybody, or one for each user who signed in, while they have a session."""

from __future__ import annotations

import asyncio

from penstock.console.history import History
from penstock.console.observe.access import ClusterAccess
from penstock.console.server.sessions import Sessions
from penstock.console.server.workspace import Workspace
from penstock.console.settings import ConsoleSettings

_LOOK_S = 1.0


class Workspaces:
    def __init__(self, settings: ConsoleSettings, history: History, sessions: Sessions) -> None:
        self._settings = settings
        self._history = history
        self._sessions = sessions
        self._open: dict[str | None, Workspace] = {}

    def find(self, user: str | None) -> Workspace | None:
        return self._open.get(user)

    def enter(self, user: str | None, access: ClusterAccess) -> None:
        """Tabs and browsers of a user share one; the login is the newest, as the password may be another one now."""
        known = self._open.get(user)
        if known is not None:
            known.access.options.update(access.options)
            access.close()
            return
        url = self._settings.prometheus
        prometheus = None if url is None else (url, self._settings.prometheus_match)
        workspace = self._open[user] = Workspace(access, self._history, user, prometheus)
        workspace.start()

    async def leave(self, user: str | None) -> None:
        """If no session of this user is left, the connections end at once, and the password is forgotten."""
        if user is not None and user not in self._sessions.users():
            workspace = self._open.pop(user, None)
            if workspace is not None:
                await workspace.close()

    async def end_unused(self) -> None:
        """Run until cancelled. Sessions also end without a sign-out: when they are idle, or a token expires."""
        while True:
            await asyncio.sleep(_LOOK_S)
            users = self._sessions.users()
            for user in [each for each in self._open if each is not None and each not in users]:
                await self.leave(user)

    async def close(self) -> None:
        await asyncio.gather(*(workspace.close() for workspace in self._open.values()))
