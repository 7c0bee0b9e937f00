"""Metrics pages of brokers: finding and parsing them.

A broker reports its metrics endpoint as one of its settings, so a bootstrap address is enough to find them all. They
are optional: a cluster of Apache Kafka has none, and a firewall may block them.
"""

from __future__ import annotations

import base64
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from penstock.client.errors import ClientError
from penstock.client.wire.login import tls_from
from penstock.model.errors import KafkaError
from penstock.settings.listeners import is_wildcard
from penstock.settings.observability import parse_metrics_listener

if TYPE_CHECKING:
    from penstock.client.wire.admin import Admin

SETTING = "penstock.metrics.listener"
PROTOCOL = "penstock.metrics.protocol"
PAGE_BYTES_MAX = 64 * 1024 * 1024

Labels = Mapping[str, str]


class Page:
    """One scrape: numbers by name and labels."""

    def __init__(self, text: str) -> None:
        from prometheus_client.parser import text_string_to_metric_families

        self._samples: dict[str, list[tuple[Labels, float]]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self._samples.setdefault(sample.name, []).append((sample.labels, sample.value))

    @property
    def names(self) -> set[str]:
        return set(self._samples)

    def of(self, name: str, **labels: str) -> Iterator[tuple[Labels, float]]:
        """Return the samples that have at least these labels."""
        for found, value in self._samples.get(name, ()):
            if all(found.get(key) == wanted for key, wanted in labels.items()):
                yield found, value

    def total(self, name: str, **labels: str) -> float:
        return sum(value for _, value in self.of(name, **labels))

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of the only sample; None if there is none."""
        values = [value for _, value in self.of(name, **labels)]
        return values[0] if len(values) == 1 else None

    def by(self, label: str, name: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for labels, value in self.of(name):
            found[labels.get(label, "")] = found.get(labels.get(label, ""), 0) + value
        return found


def read_page(url: str, timeout: float = 5.0, properties: Mapping[str, str] | None = None) -> Page:
    """Read a page; raise OSError or ValueError if that fails.

    `properties` are the client's: `ssl.*`, and `penstock.metrics.user` and `.password`, or `.bearer.token`.
    """
    given = properties or {}
    # Never use a proxy: the endpoints are next to the brokers.
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if url.startswith("https:"):
        try:
            handlers.append(urllib.request.HTTPSHandler(context=tls_from({**given, "security.protocol": "SSL"})))
        except ClientError as error:
            raise ValueError(str(error)) from error
    request = urllib.request.Request(url, headers=_authorization(given))
    with urllib.request.build_opener(*handlers).open(request, timeout=timeout) as answer:
        return Page(answer.read(PAGE_BYTES_MAX).decode("utf-8"))


def _authorization(properties: Mapping[str, str]) -> dict[str, str]:
    token, user = properties.get("penstock.metrics.bearer.token"), properties.get("penstock.metrics.user")
    if token:
        return {"Authorization": f"Bearer {token}"}
    if not user:
        return {}
    pair = f"{user}:{properties.get('penstock.metrics.password', '')}"
    return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def find_pages(admin: Admin, hosts: Mapping[int, str]) -> dict[int, str]:
    """Return the URLs of the brokers' metrics pages by broker id, without those that have or report none."""
    from penstock.client.wire.admin import ResourceType

    found: dict[int, str] = {}
    for broker_id, host in hosts.items():
        try:
            configs = admin.configs.describe(ResourceType.BROKER, str(broker_id))
            settings = {each.name: each.value or "" for each in configs if each.name in (SETTING, PROTOCOL)}
            address = parse_metrics_listener(settings.get(SETTING, ""))
        except (ClientError, KafkaError):
            continue
        if address is not None and address[1]:
            listens_on = host if is_wildcard(address[0]) else address[0]
            shown = f"[{listens_on}]" if ":" in listens_on else listens_on
            found[broker_id] = f"{settings.get(PROTOCOL) or 'http'}://{shown}:{address[1]}/metrics"
    return found


def read_pages(
    urls: Mapping[int, str], timeout: float = 5.0, properties: Mapping[str, str] | None = None
) -> dict[int, Page]:
    """Read the pages that answer."""
    pages: dict[int, Page] = {}
    for broker_id, url in urls.items():
        try:
            pages[broker_id] = read_page(url, timeout, properties)
        except (OSError, ValueError, urllib.error.URLError):
            continue
    return pages
