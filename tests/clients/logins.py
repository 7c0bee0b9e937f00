"""How each client library logs in, from settings by librdkafka's names; without settings it does not."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any


def of_python_clients(login: Mapping[str, str]) -> dict[str, Any]:
    """As arguments of aiokafka and kafka-python, which have the same names."""
    if not login:
        return {}
    return {
        "security_protocol": login["security.protocol"],
        "sasl_mechanism": login["sasl.mechanism"],
        "sasl_plain_username": login["sasl.username"],
        "sasl_plain_password": login["sasl.password"],
        "ssl_context": ssl.create_default_context(cafile=login["ssl.ca.location"]),
    }


def of_penstock(login: Mapping[str, str]) -> dict[str, str]:
    """By Kafka's names."""
    settings = dict(login)
    if trusted := settings.pop("ssl.ca.location", None):
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": trusted}
    return settings
