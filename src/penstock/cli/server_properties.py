"""Reads the `server.properties` of a node, with the values that its `config.providers` have."""

from __future__ import annotations

from functools import partial

from penstock.io.config_providers import open_provider
from penstock.settings.properties import parse_properties
from penstock.settings.providers import resolve


def read_server_properties(path: str, overrides: dict[str, str] | None = None) -> dict[str, str]:
    """OSError or UnicodeDecodeError if the file cannot be read, KafkaError if a provider has no value."""
    with open(path, encoding="utf-8") as file:
        properties = parse_properties(file.read())
    return resolve({**properties, **(overrides or {})}, partial(open_provider, parse_properties=parse_properties))
