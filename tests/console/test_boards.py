"""Reports as bars and maps, and boards of several: what they say, without a browser."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.errors import BadSetting
from penstock.console.pages import reports as reports_page
from penstock.console.server.boards import read_board
from penstock.console.views import geography
from penstock.console.views.boards import BadBoard, parse_board
from penstock.console.views.geography import Place, draw_map
from penstock.console.views.reports import BARS_MAX, Reading, bars, lines, located, parse_report, places
from penstock.demo.console import board_file
from penstock.demo.workload import TOPICS


def trucks(count: int = 3) -> list[Reading]:
    """The newest first; truck-0 stands still."""
    return [
        Reading(
            {
                "truck": f"truck-{index % count}",
                "at": {"lat": 50.0 + index % count, "lon": 8.0 - (0.1 * index if index % count else 0)},
                "speed": 10 * (index % count),
            },
            1_000_000 - 1000 * index,
        )
        for index in range(30)
    ]


MAP = parse_report(
    {"topic": "t", "kind": "map", "latitude": "at.lat", "longitude": "at.lon", "by": "truck", "value": "speed"}
)


def test_a_map_shows_the_last_place_of_each_thing_and_its_way() -> None:
    drawn = draw_map(places(trucks(), MAP))
    assert drawn is not None
    still, _, fastest = drawn.things
    assert [thing.name for thing in drawn.things] == ["truck-0", "truck-1", "truck-2"]
    assert (still.trail, still.share, still.place.at_ms) == ("", 0.0, 1_000_000)
    assert fastest.trail.startswith(f"M{fastest.x:.1f} {fastest.y:.1f}L")
    assert fastest.share == 1.0
    assert fastest.y < still.y, "north is up"
    assert "Cologne" in {town.name for town in drawn.towns}
    assert all(later.position > earlier.position for earlier, later in pairwise(drawn.across))


def test_a_map_of_nothing_and_of_one_place() -> None:
    assert draw_map([]) is None
    drawn = draw_map([Place("", 90.0, 180.0, 0.0)])
    assert drawn is not None
    assert (drawn.things[0].x, drawn.things[0].y) == (geography.WIDTH / 2, drawn.height / 2)
    broken = [Reading({"at": {"lat": lat, "lon": 8}}, 0) for lat in (91, True, None, "50", float("nan"))]
    assert places(broken, MAP) == []


@given(
    st.lists(
        st.builds(
            Place,
            st.text(max_size=3),
            st.floats(-90, 90),
            st.floats(-180, 180),
            st.just(0.0),
            st.none() | st.floats(allow_nan=False, allow_infinity=False),
        ),
        max_size=30,
    )
)
def test_everything_on_a_map_is_inside_of_it(given_places: list[Place]) -> None:
    drawn = draw_map(given_places)
    for thing in () if drawn is None else drawn.things:
        assert drawn is not None
        assert 0 <= thing.x <= geography.WIDTH
        assert 0 <= thing.y <= drawn.height
        assert 0 <= thing.share <= 1


def test_a_map_has_an_end() -> None:
    many = [Place(f"t{index}", 50 + index / 1000, 8.0, 0.0) for index in range(geography.THINGS_MAX + 7)]
    drawn = draw_map(many)
    assert drawn is not None
    assert (len(drawn.things), drawn.left_out) == (geography.THINGS_MAX, 7)
    long = draw_map([Place("t", 50 + index / 1000, 8.0, 0.0) for index in range(10_000)])
    assert long is not None
    assert long.things[0].trail.count("L") <= geography.TRAIL_MAX


def test_fields_of_a_map_are_found_by_their_names() -> None:
    guessed = located(replace(MAP, latitude="", longitude=""), ["speed", "at.lat", 'at["lon"]'])
    assert (guessed.latitude, guessed.longitude) == ("at.lat", 'at["lon"]')
    assert located(replace(MAP, latitude="", longitude=""), ["speed"]).latitude == ""
    assert located(MAP, ["latitude"]) == MAP


def test_bars_count_or_take_a_field_of_each() -> None:
    readings = [Reading({"page": page, "ms": ms}, 0) for page, ms in (("/a", 5), ("/b", 7), ("/a", 9))]
    report = parse_report({"topic": "t", "kind": "bars", "by": "page"})
    assert [(bar.name, bar.value, bar.share) for bar in bars(readings, report).bars] == [("/a", 2, 1.0), ("/b", 1, 0.5)]
    last = bars(readings, replace(report, value="ms", how="last"))
    assert [(bar.name, bar.value) for bar in last.bars] == [("/b", 7), ("/a", 5)], "the newest is the first given"
    many = [Reading({"page": str(index)}, 0) for index in range(BARS_MAX + 3)]
    assert bars(many, report).left_out == 3
    assert bars([], report).bars == ()


def test_the_last_interval_of_a_count_is_left_out() -> None:
    report = parse_report({"topic": "t"})
    series, _, _ = lines([Reading({}, at) for at in range(0, 10_500, 500)], report)
    assert {value for _, value in series[0].points} == {2}


@given(st.text(max_size=20), st.text(max_size=20))
def test_names_from_records_are_escaped_in_pictures(name: str, page: str) -> None:
    evil = f"<script>{name}"
    readings = [Reading({"truck": evil, "at": {"lat": 50, "lon": 8}, "speed": 1, "page": f"<b>{page}"}, 0)]
    for report in (MAP, parse_report({"kind": "bars", "by": "page"}), parse_report({"by": "page"})):
        html = reports_page.picture(report, readings, evil)
        assert "<script" not in html
        assert "<b>&lt;" not in html.replace("<b>1</b>", "")


def test_a_board_is_read_from_a_file(tmp_path: Path) -> None:
    board = read_board(board_file())
    assert board.name == "demo"
    assert {panel.report.topic for panel in board.panels} <= set(TOPICS)
    assert [panel.report.kind for panel in board.panels].count("map") == 1
    assert all(not panel.report.problems for panel in board.panels)
    with pytest.raises(BadSetting, match="No such file"):
        read_board(str(tmp_path / "none.toml"))
    (tmp_path / "bad.toml").write_bytes(b"\xff")
    with pytest.raises(BadSetting, match="--board"):
        read_board(str(tmp_path / "bad.toml"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("titel = 3", "unknown field 'titel'"),
        ("title = 'x'", "at least one"),
        ("panel = 3", "at least one"),
        ("[[panel]]\n", "panel 1: topic is missing"),
        ("[[panel]]\ntopic='t'\nkind='pie'", "kind is one of lines, bars, map"),
        ("[[panel]]\ntopic='t'\nhow='median'", "how is one of"),
        ("[[panel]]\ntopic='t'\nvalue=3", "value must be a text"),
        ("[[panel]]\ntopic='t'\ncolour='red'", "unknown field 'colour'"),
        ("[[panel]]\ntopic='t'\nrecords=true", "records must be a number"),
        ("[[panel]]\ntopic='t'\nrecords=1000000", "records must be a number"),
        ("[[panel]]\ntopic='t'\nby='a b'", "is not a path"),
        ("[[panel", "board x: "),
        ("[[panel]]\ntopic='t'\n" * 25, "24 are the most"),
    ],
)
def test_a_mistake_in_a_board_is_named(text: str, says: str) -> None:
    with pytest.raises(BadBoard, match=says):
        parse_board("x", text)


@given(st.text(max_size=200))
def test_any_text_is_a_board_or_refused(text: str) -> None:
    with contextlib.suppress(BadBoard):
        parse_board("x", text)
