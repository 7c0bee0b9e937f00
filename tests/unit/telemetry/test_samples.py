"""What clients sent, as Prometheus shows it: names, labels, limits, and how long it is kept."""

from __future__ import annotations

from penstock.telemetry.otlp import Point
from penstock.telemetry.samples import ClientSamples
from penstock.telemetry.subscriptions import Client


def client(instance_id: str = "i1") -> Client:
    return Client(instance_id, "orders", "librdkafka", "2.11.0", "10.0.0.7", "4711")


def push(samples: ClientSamples, *points: Point, who: str = "i1", now_ms: int = 0, series_max: int = 100) -> None:
    samples.push(client(who), points, now_ms, keep_ms=1000, series_max=series_max)


def shown(samples: ClientSamples) -> dict[str, list[float]]:
    return {name: [value for _, value in values] for name, _, values in samples.by_name()}


def test_names_and_labels() -> None:
    samples = ClientSamples()
    push(
        samples,
        Point("org.apache.kafka.producer.record.send.total", (("topic", "t"), ("node-id", "1")), 3, is_monotonic=True),
        Point("com.example.9 lives", (("client_id", "somebody else"), ("__name__", "evil")), 1.5),
        Point("sent", (), 2, is_monotonic=True),
    )
    named = {name: (is_counter, values) for name, is_counter, values in samples.by_name()}
    ours = (
        ("client_id", "orders"),
        ("client_instance_id", "i1"),
        ("client_software_name", "librdkafka"),
        ("client_software_version", "2.11.0"),
    )
    assert named == {
        "penstock_client_producer_record_send_total": (True, [((*ours, ("node_id", "1"), ("topic", "t")), 3)]),
        "penstock_client_com_example_9_lives": (False, [((*ours, ("name__", "evil")), 1.5)]),
        "penstock_client_sent_total": (True, [(ours, 2)]),
    }


def test_a_push_replaces_the_one_before_and_differences_add_up() -> None:
    samples = ClientSamples()
    for value in (5, 7):
        push(samples, Point("total", (), value, is_monotonic=True), Point("delta", (), value, True, is_delta=True))
    push(samples, Point("total", (), 1, is_monotonic=True), who="i2")
    assert shown(samples) == {"penstock_client_total": [7, 1], "penstock_client_delta_total": [12]}
    push(samples, Point("other", (), 1))
    assert shown(samples) == {"penstock_client_total": [1], "penstock_client_other": [1]}
    assert len(samples) == 2


def test_clients_of_two_minds_about_a_metric_make_it_a_gauge() -> None:
    samples = ClientSamples()
    push(samples, Point("x.total", (), 1, is_monotonic=True))
    push(samples, Point("x.total", (), 2), who="i2")
    assert [(name, is_counter) for name, is_counter, _ in samples.by_name()] == [("penstock_client_x_total", False)]


def test_there_is_a_limit() -> None:
    samples = ClientSamples()
    push(samples, *(Point(f"m{number}", (), 1) for number in range(5)), series_max=3)
    push(samples, Point("another", (), 1), who="i2", series_max=3)
    assert (len(samples), samples.left_out) == (3, 3)


def test_silence_is_forgotten() -> None:
    samples = ClientSamples()
    push(samples, Point("m", (), 1))
    push(samples, Point("m", (), 2), who="i2", now_ms=500)
    samples.expire(1000)
    assert shown(samples) == {"penstock_client_m": [2]}
    push(samples, Point("m", (), 3), who="i3", now_ms=1500)
    assert shown(samples) == {"penstock_client_m": [3]}
