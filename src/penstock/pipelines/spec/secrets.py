"""Secrets in pipeline files: values that are used and never shown.

    options:
      password: ${secret:env:DB_PASSWORD}
      truststore: ${secret:file:/run/secrets/truststore}

A `Secret` is the text with its references. The values are looked up only when the runner passes them to Spark; those of
Kafka's clients are never passed to Spark, which shows options in plans: each process looks them up for itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.client.secrets import REFERENCE as REFERENCE
from penstock.client.secrets import SecretMissing as SecretMissing
from penstock.client.secrets import redacted as redacted
from penstock.client.secrets import reveal
from penstock.client.secrets import syntax_error as syntax_error

_CLIENT_PREFIXES = ("kafka.sasl.", "kafka.ssl.", "kafka.security.")


@dataclass(frozen=True, slots=True)
class Secret:
    template: str
    """Text with references; `${secret:env:X}` may be part of a longer one, such as a URL."""

    def reveal(self, environment: Mapping[str, str] = os.environ) -> str:
        return reveal(self.template, environment)

    def check(self, environment: Mapping[str, str] = os.environ) -> None:
        """Check that each reference has a value; SecretMissing if not."""
        self.reveal(environment)

    def __str__(self) -> str:
        return self.template


def plain(options: Mapping[str, str | Secret]) -> dict[str, str]:
    """The options for Spark, revealed. Do not pass the result to anything else."""
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in options.items()}


def plain_of_topic(options: Mapping[str, str | Secret]) -> dict[str, str]:
    """The options of a topic's source or sink: those about security stay references."""
    clients = {name: str(value) for name, value in options.items() if name.lower().startswith(_CLIENT_PREFIXES)}
    return {**plain({name: value for name, value in options.items() if name not in clients}), **clients}
