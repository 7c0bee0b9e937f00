"""Metrics as text: what Prometheus' own parser makes of it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from penstock.broker.metrics.exposition import Sample, lines_of
from penstock.broker.metrics.families import FAMILIES, GROUP_LAG, LATENCY, Family
from penstock.broker.net.latency import Latencies, Latency
from penstock.model.errors import KafkaError
from penstock.settings.observability import parse_metrics_listener


def text_of(family: Family, samples: list[Sample]) -> str:
    return "".join(lines_of(family, samples))


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_every_family_is_understood(family: Family) -> None:
    labels = tuple(f"{name} of it" for name in family.labels)
    latency = Latency("one")
    latency.add(1_000_000)
    sample: Sample = (labels, latency) if family.kind == "histogram" else (labels, 7)
    (parsed,) = text_string_to_metric_families(text_of(family, [sample]))
    assert parsed.type == family.kind
    assert parsed.documentation == family.help
    assert parsed.name == family.name.removesuffix("_total")
    assert len(family.help) < 300
    assert family.help.endswith(".")
    for each in parsed.samples:
        assert {name: each.labels[name] for name in family.labels} == dict(zip(family.labels, labels, strict=True))


@given(st.text())
def test_labels_come_back_as_they_were(group: str) -> None:
    (parsed,) = text_string_to_metric_families(text_of(GROUP_LAG, [((group, "topic", "0"), 3)]))
    (sample,) = parsed.samples
    assert sample.labels == {"consumergroup": group, "topic": "topic", "partition": "0"}
    assert sample.value == 3


@given(st.lists(st.tuples(st.integers(0, 1 << 63), st.integers(1, 64)), max_size=30))
def test_a_histogram_counts_every_request_once(requests: list[tuple[int, int]]) -> None:
    latency = Latency("Produce")
    for elapsed_ns, count in requests:
        latency.add(elapsed_ns, count)
    (parsed,) = text_string_to_metric_families(text_of(LATENCY, [(("Produce",), latency)]))
    buckets = {float(sample.labels["le"]): sample.value for sample in parsed.samples if sample.name.endswith("_bucket")}
    total = sum(count for _, count in requests)
    assert buckets[math.inf] == total
    for bound, counted in buckets.items():
        if bound < math.inf:
            assert counted == sum(count for elapsed_ns, count in requests if elapsed_ns / 1e9 <= bound)
    assert [sample.value for sample in parsed.samples if sample.name.endswith("_count")] == [total]
    (seconds,) = [sample.value for sample in parsed.samples if sample.name.endswith("_sum")]
    assert seconds == pytest.approx(sum(elapsed_ns * count for elapsed_ns, count in requests) / 1e9)


def test_an_api_is_counted_in_one_place() -> None:
    latencies = Latencies()
    assert latencies.of("Produce") is latencies.produce
    assert latencies.of("Metadata") is latencies.of("Metadata")
    assert {each.name for each in latencies.all()} == {"Produce", "FetchFollower", "Metadata"}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", None),
        (":9404", ("", 9404)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("metrics.example.com:9404", ("metrics.example.com", 9404)),
        ("[::1]:9404", ("::1", 9404)),
    ],
)
def test_addresses(text: str, address: tuple[str, int] | None) -> None:
    assert parse_metrics_listener(text) == address


@pytest.mark.parametrize("text", ["9404", "http://127.0.0.1:9404", "127.0.0.1:70000", "::1:9404", "a b:1:2"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(KafkaError, match="is not HOST:PORT"):
        parse_metrics_listener(text)
