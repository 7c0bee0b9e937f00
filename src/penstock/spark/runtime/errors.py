"""Why a session could not be had. Every message is one line that names the way out."""

from __future__ import annotations

from penstock.client.errors import ClientError


class NoSession(ClientError):
    """Spark cannot be started as asked."""


class JavaMissing(NoSession):
    """No Java that Spark runs on."""


class SparkMissing(NoSession):
    """pyspark is not installed."""


class MasterUnreachable(NoSession):
    """Nothing answers at the master's address."""


class SessionConflict(NoSession):
    """A session runs already, and what is asked for can only be had from a new one."""


class NotShipped(NoSession):
    """The running environment cannot be packed for the executors."""
