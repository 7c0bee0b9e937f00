"""The errors of starting a session. Every message is one line that says what to do."""

from __future__ import annotations

from penstock.client.errors import ClientError


class NoSession(ClientError):
    """Spark cannot be started with these arguments."""


class JavaMissing(NoSession):
    """There is no Java that Spark runs on."""


class SparkMissing(NoSession):
    """pyspark is not installed."""


class MasterUnreachable(NoSession):
    """Nothing answers at the master's address."""


class SessionConflict(NoSession):
    """A session is already running, and the requested one needs a new session."""


class NotShipped(NoSession):
    """The running environment cannot be packed for the executors."""
