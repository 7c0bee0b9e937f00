"""What pages say, without a browser: decoding, filters, searches, lists, lag, charts."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrowing import present
from penstock.client.errors import BadSetting
from penstock.client.wire.admin.cluster import BrokerDescription, ClusterDescription
from penstock.client.wire.admin.group_lag import PartitionLag
from penstock.client.wire.admin.group_members import GroupDescription, GroupMember
from penstock.client.wire.admin.group_reset import ShiftBy
from penstock.client.wire.admin.topics import PartitionDescription, TopicDescription
from penstock.console import units
from penstock.console.markup import address, tag
from penstock.console.observe.sampler import interval_s
from penstock.console.pages import groups as groups_page
from penstock.console.settings import ConsoleSettings, check, parse_listen
from penstock.console.views import charts
from penstock.console.views.decoding import SHOWN_MAX, decode, decode_record, depth
from penstock.console.views.groups import group_list, group_state, parse_reset
from penstock.console.views.json_path import BadPath, parse_condition, parse_path
from penstock.console.views.lag import REMEMBERED, EndTimes
from penstock.console.views.listing import ROWS_PER_PAGE
from penstock.console.views.masking import HIDDEN, masked, parse_rule, paths_for
from penstock.console.views.overview import overview
from penstock.console.views.query import WINDOW_MAX, Query, Ranges, parse_query, windows
from penstock.console.views.sample import GroupSeen, Sample, Seen, Traffic
from penstock.console.views.text import one_line, visible
from penstock.console.views.topics import topic_list, topic_state
from penstock.model.ids import TopicPartition
from penstock.protocol.codec import encode
from penstock.protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue

# -- HTML.


def test_text_and_attributes_are_escaped() -> None:
    assert tag("a", "<b>&'\"", href='"><script>') == '<a href="&quot;&gt;&lt;script&gt;">&lt;b&gt;&amp;&#39;&quot;</a>'
    assert tag("p", tag("b", "x"), [1, None, "\x00"], class_="y", data_z=True, hidden=False) == (
        '<p class="y" data-z><b>x</b>1\ufffd</p>'
    )
    assert tag("p", "\ud800") == "<p>?</p>"
    assert address("/group", name="a/b?&=<", q="") == "/group?name=a%2Fb%3F%26%3D%3C"


@given(st.text(), st.text())
def test_no_text_becomes_markup(text: str, attribute: str) -> None:
    html = tag("p", text, title=attribute)
    inner = html.removeprefix('<p title="').removesuffix("</p>")
    assert inner.count("<") == 0
    assert inner.count('"') == 1


def test_hidden_characters_are_shown() -> None:
    assert visible("\x1b[31mred\x07 \u202egpj.exe\u200b") == "\\x1b[31mred\\x07 \\u202egpj.exe\\u200b"
    assert visible("tab\tline\n Köln 東京 🚚") == "tab\tline\n Köln 東京 🚚"
    assert one_line("a\nb" + "x" * 500, 10) == "a⏎bxxxxxxx…"


# -- Decoding.


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (None, "null", "null"),
        (b"", "empty", ""),
        (b'{"a": 1}', "json", '{"a": 1}'),
        (b"plain", "text", "plain"),
        (b"42", "text", "42"),
        (b"{broken", "text", "{broken"),
        (b"\xff\xfe", "hex", "ff fe"),
        (b"\x00\x00\x00\x07", "hex", "00 00 00 07"),
        (b"<script>", "text", "<script>"),
    ],
)
def test_bytes_are_recognised(data: bytes | None, kind: str, text: str) -> None:
    decoded = decode(data)
    assert (decoded.kind, decoded.text) == (kind, text)


def test_large_and_deep_values_are_bounded() -> None:
    large = decode(b'{"x": "' + b"\xc3\xa4" * 5_000_000 + b'"}', pretty=True)
    assert (large.kind, large.is_cut, large.size) == ("json", True, 10_000_009)
    assert len(large.text) <= SHOWN_MAX
    binary = decode(b"\xff" * 10_000_000, pretty=True)
    assert (binary.kind, binary.is_cut) == ("hex", True)
    for levels in (1_000, 100_000):
        deep = decode(b"[" * levels + b"]" * levels, pretty=True)
        assert "nested too deeply" in deep.note
    assert depth(json.loads("[" * 50 + "]" * 50)) == 50


@given(st.binary(max_size=300))
def test_any_bytes_can_be_shown(data: bytes) -> None:
    for pretty in (False, True):
        decoded = decode(data, pretty=pretty)
        assert decoded.size == len(data)
        decoded.text.encode()
        assert not any(ord(each) < 32 and each not in "\n\t" for each in decoded.text)


def test_records_of_internal_topics_are_readable() -> None:
    key = b"\x00\x01" + encode(OffsetCommitKey(group="billing", topic="orders", partition=3), 0)
    value = b"\x00\x03" + encode(OffsetCommitValue(offset=17, metadata="", commit_timestamp=5), 3)
    shown_key, shown_value = decode_record("__consumer_offsets", key, value)
    assert json.loads(shown_key.text) == {"OffsetCommit": {"group": "billing", "topic": "orders", "partition": 3}}
    assert json.loads(shown_value.text)["OffsetCommit"]["offset"] == 17
    assert decode_record("__consumer_offsets", key, None)[1].kind == "null"
    assert decode_record("__consumer_offsets", key, b"\x7f\x7f")[1].kind == "hex"


# -- Conditions and masks.


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("order.total > 10", True),
        ("$.order.total <= 10", False),
        ('status = "open"', True),
        ("status = open", True),
        ("status == 'open'", True),
        ("status != open", False),
        ("status ~ pe", True),
        ("items[1].sku = b", True),
        ("items[-1].sku = a", False),
        ('["odd name"] = 1', True),
        ("order", True),
        ("missing", False),
        ("missing != 3", False),
        ("paid = true", True),
        ("paid = 1", False),
        ("note = null", True),
        ("order.total = '12.5'", False),
    ],
)
def test_conditions(condition: str, holds: bool) -> None:
    document = {
        "order": {"total": 12.5},
        "status": "open",
        "items": [{"sku": "a"}, {"sku": "b"}],
        "odd name": 1,
        "paid": True,
        "note": None,
    }
    parsed = parse_condition(condition)
    assert parsed.holds(document) is holds
    if holds:
        text = json.dumps(document).encode()
        assert all(each in text for each in parsed.necessary())


def test_samples_leave_the_cluster_time_and_failures_are_followed_by_another_attempt_soon() -> None:
    assert interval_s(0.05, watched=True) == 2.0
    assert interval_s(0.05, watched=False) == 10.0
    assert interval_s(3.0, watched=True) == 30.0
    assert interval_s(8.0, watched=True, failed=True) == 8.0
    assert interval_s(60.0, watched=True, failed=True) == 10.0


def test_bad_conditions_say_what_is_expected() -> None:
    for text in ("", "=3", "a ? 3", "a ="):
        with pytest.raises(BadPath):
            parse_condition(text)
    with pytest.raises(BadPath):
        parse_path("a b")


def test_masked_fields_are_gone_before_anything_sees_them() -> None:
    rules = [parse_rule("pay*:card.number"), parse_rule("payments:people.name")]
    paths = paths_for("payments", rules)
    assert paths_for("orders", rules) == ()
    value = json.dumps({"card": {"number": "4111", "type": "x"}, "people": [{"name": "Ada"}, {"name": "Bo"}]}).encode()
    shown = masked(value, paths)
    assert shown is not None
    assert b"4111" not in shown
    assert b"Ada" not in shown
    assert json.loads(shown)["card"]["type"] == "x"
    assert masked(shown, paths) == shown
    assert masked(b"4111", paths) == HIDDEN
    assert masked(None, paths) is None
    with pytest.raises(BadSetting):
        parse_rule("nothing")


# -- Queries.


def test_a_query_survives_its_address() -> None:
    given = {
        "from": "time",
        "since": "2026-05-01T12:00:00Z",
        "key": "a&b",
        "where": "a > 1",
        "limit": "100",
        "follow": "1",
    }
    query = parse_query(given)
    assert query.problems == ()
    assert parse_query(query.parameters()) == query
    assert query.parameters() == given
    assert parse_query({}).parameters() == {}


def test_parameters_that_make_no_sense_are_named() -> None:
    query = parse_query(
        {"from": "x", "offset": "-3", "since": "soon", "where": "= 3", "partition": "one", "limit": "7"}
    )
    assert len(query.problems) == 5
    assert (query.start, query.limit, query.partition, query.condition) == ("end", 50, None, None)


@given(
    st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 1_000_000), st.integers(0, 1_000_000)), max_size=4),
    st.booleans(),
    st.integers(1, 5000),
)
def test_windows_read_every_offset_once(spans: dict[int, tuple[int, int]], newest_first: bool, first: int) -> None:
    ranges: Ranges = {TopicPartition("t", each): (min(span), max(span)) for each, span in spans.items()}
    read: dict[TopicPartition, list[tuple[int, int]]] = {}
    for piece in windows(ranges, newest_first=newest_first, first=first):
        for partition, (begin, end) in piece.items():
            assert 0 < end - begin <= max(first, WINDOW_MAX)
            read.setdefault(partition, []).append((begin, end))
    for partition, (begin, end) in ranges.items():
        pieces = sorted(read.get(partition, []), reverse=newest_first)
        assert pieces == read.get(partition, [])
        in_order = sorted(pieces)
        assert [each[0] for each in in_order] + [end] == ([begin] if begin < end else []) + [
            each[1] for each in in_order
        ] or begin == end


def test_filters_are_recognised() -> None:
    assert not Query().is_filtered
    assert Query(text="x").is_filtered
    assert Query(header="a=b").header_pair == ("a", "b")
    assert Query(header="a").header_pair == ("a", None)


# -- Samples.


def partition(index: int, leader: int | None = 1, isr: tuple[int, ...] = (1,)) -> PartitionDescription:
    return PartitionDescription(index, leader, 0, (1, 2), isr, ())


def sample(number: int, at_ms: int, end: int, committed: int = 0, **more: object) -> Sample:
    topics = {
        "orders": TopicDescription(
            "orders", "id", False, (partition(0, isr=(1, 2)), partition(1, leader=None, isr=()))
        ),
        "__internal": TopicDescription("__internal", "id", True, (partition(0),)),
    }
    cluster = ClusterDescription(
        "cluster",
        1,
        (BrokerDescription(1, "h", 9092, None), BrokerDescription(2, "h", 9093, "r", fenced=True)),
        None,
        2,
        3,
        (TopicPartition("orders", 1),),
        (TopicPartition("orders", 1),),
    )
    group = GroupDescription("billing", "consumer", "Stable", "consumer", "uniform", 1, 4, 4, ())
    lag = PartitionLag("orders", 0, None, None, committed, end, end - committed)
    return Sample(
        number=number,
        at_ms=at_ms,
        cluster=cluster,
        topics=topics,
        ends={TopicPartition("orders", 0): end, TopicPartition("__internal", 0): 10 * end},
        starts={TopicPartition("orders", 0): 10},
        sizes={TopicPartition("orders", 0): {1: 500, 2: 400}},
        groups={"billing": GroupSeen(group, (lag,), {TopicPartition("orders", 0): 3.0})},
        traffic={1: Traffic(end * 100.0, 0.0, 5.0, 3, 1000)},
    )


SEEN = Seen(sample(2, 12_000, 120, 100), sample(1, 10_000, 100, 50))


def test_the_overview_counts_and_names_what_is_wrong() -> None:
    assert overview(Seen(problem="down")) is None
    view = overview(SEEN)
    assert view is not None
    assert (view.up, len(view.brokers), view.topics, view.internal_topics) == (1, 2, 1, 1)
    assert not view.is_healthy
    assert view.records == 10.0
    assert view.bytes_in == 1000.0
    assert view.size == 900
    first, second = view.brokers
    assert (first.leads, first.in_sync, first.replicas, first.is_controller) == (2, 2, 3, True)
    assert (second.is_up, second.lacks) == (False, 2)


def test_topics_are_searched_sorted_and_cut_into_pages() -> None:
    described = {
        f"topic-{index:05d}": TopicDescription(
            f"topic-{index:05d}", None, False, tuple(map(partition, range(index % 7 + 1)))
        )
        for index in range(10_000)
    }
    seen = Seen(Sample(number=1, at_ms=0, cluster=sample(1, 0, 1).cluster, topics=described))
    view = topic_list(seen, {})
    assert (view.found, view.pages, len(view.rows)) == (10_000, 100, ROWS_PER_PAGE)
    assert topic_list(seen, {"q": "topic 0999", "sort": "-name"}).rows[0].name == "topic-09999"
    assert topic_list(seen, {"sort": "-partitions", "page": "2"}).rows[0].partitions == 7
    assert topic_list(seen, {"page": "999999"}).page == 100
    assert topic_list(seen, {"page": "x", "sort": "nonsense"}).rows[0].name == "topic-00000"
    assert topic_list(SEEN, {}).all == 1
    assert topic_list(SEEN, {"internal": "1"}).all == 2
    assert topic_list(Seen(), {}).rows == ()


def test_the_state_of_a_topic() -> None:
    view = topic_state(SEEN, "orders")
    assert view is not None
    assert (view.records, view.size, view.rate, view.groups) == (110, 900, 10.0, (("billing", 20),))
    assert view.partitions[1].leader is None
    assert topic_state(SEEN, "missing") is None


def test_a_share_group_is_read_by_several_members() -> None:
    place = TopicPartition("jobs", 0)
    members = tuple(
        GroupMember(member_id, None, "crane", "10.0.0.1", None, 2, ("jobs",), None, (place,), None)
        for member_id in ("a", "b")
    )
    group = GroupDescription("workers", "share", "Stable", "share", "simple", 1, 2, 2, members)

    def sample(at_ms: int, lag: int) -> Sample:
        lags = (PartitionLag("jobs", 0, None, None, 10, 100, lag),)
        assert SEEN.now is not None
        return replace(SEEN.now, at_ms=at_ms, groups={"workers": GroupSeen(group, lags)})

    seen = Seen(now=sample(3000, 50), before=sample(1000, 70))
    view = present(group_state(seen, "workers"))
    assert view.is_share
    assert (view.row.kind, view.row.members, view.row.lag) == ("share (KIP-932)", 2, 50)
    assert view.row.rate == 10.0  # although the start offset stands still
    assert view.lags[0].client == "crane on 10.0.0.1 (2)"
    shown = str(groups_page.state(view))
    assert "Records that are neither accepted nor given up." in shown
    assert "Instance" not in shown


def test_groups_and_their_lag() -> None:
    (row,) = group_list(SEEN, {"q": "bill"}).rows
    assert (row.lag, row.seconds, row.rate, row.kind) == (20, 3.0, 25.0, "consumer (KIP-848)")
    assert group_list(SEEN, {"q": "nobody"}).rows == ()
    view = group_state(SEEN, "billing")
    assert view is not None
    assert view.lags[0].seconds == 3.0
    assert group_state(SEEN, "nobody") is None


def test_a_lag_that_is_not_known_everywhere_is_not_known() -> None:
    lags = (PartitionLag("t", 0, None, None, 5, 5, 0), PartitionLag("t", 1, None, None, 1, 9, 8))
    group = GroupSeen(SEEN.now.groups["billing"].description if SEEN.now else None, lags, {TopicPartition("t", 0): 0.0})  # type: ignore[arg-type]
    assert group.seconds_behind is None


def test_seconds_behind_follow_from_when_the_end_was_where() -> None:
    times, place = EndTimes(), TopicPartition("orders", 0)
    assert times.seconds_behind(place, 5, 0) is None
    for second in range(101):
        times.remember(place, second * 10, second * 1000)
    assert times.seconds_behind(place, 1000, 100_000) == 0.0
    assert times.seconds_behind(place, 500, 100_000) == pytest.approx(50, abs=1)
    assert times.seconds_behind(place, 505, 100_000) == pytest.approx(49.5, abs=1)
    times.remember(place, 3, 200_000)  # created again
    assert times.seconds_behind(place, 2, 200_000) is None
    for second in range(5000):
        times.remember(place, 3 + second, 200_000 + second * 1000)
    assert len(times._ends[place]) <= REMEMBERED
    times.keep_only([])
    assert times.seconds_behind(place, 3, 0) is None


@pytest.mark.parametrize(
    ("given_form", "expected"),
    [
        ({"to": "earliest"}, "earliest"),
        ({"to": "offset", "value": "17"}, 17),
        ({"to": "shift", "value": "-5"}, ShiftBy(-5)),
        ({"to": "duration", "value": "90"}, timedelta(minutes=90)),
        ({"to": "time", "value": "2026-05-01T12:00:00"}, datetime(2026, 5, 1, 12, tzinfo=UTC)),
    ],
)
def test_where_to_reset(given_form: dict[str, str], expected: object) -> None:
    assert parse_reset(given_form) == expected


def test_resets_that_make_no_sense() -> None:
    for form in ({}, {"to": "offset"}, {"to": "offset", "value": "-1"}, {"to": "time", "value": "x"}, {"to": "moon"}):
        with pytest.raises(ValueError):
            parse_reset(form)


# -- Charts, units, settings.


def test_a_chart_shows_what_is_inside_its_time_and_leaves_gaps() -> None:
    points = [(float(at), float(at % 7)) for at in [*range(0, 100, 10), *range(500, 600, 10)]]
    drawn = charts.draw([charts.Series("a", points), charts.Series("old", [(-50.0, 1.0)])], 0, 1000)
    assert [line.name for line in drawn.lines] == ["a"]
    assert drawn.lines[0].path.count("M") == 2
    many = charts.draw([charts.Series(str(index), [(1.0, index)]) for index in range(20)], 0, 10)
    assert (len(many.lines), many.left_out, many.lines[0].name) == (charts.LINES_MAX, 12, "19")
    assert charts.draw([], 0, 10).is_empty


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e12, max_value=1e12))
def test_the_top_of_a_scale_is_above_the_value(value: float) -> None:
    assert charts.nice_ceiling(value) >= value * 0.999


@given(st.integers(0, 2**41), st.integers(1_000, 2**36))
def test_there_are_few_ticks(begin: int, span: int) -> None:
    ticks = charts.time_ticks(begin, begin + span)
    assert len(ticks) <= 30
    assert all(begin <= tick <= begin + span for tick in ticks)


def test_units() -> None:
    assert units.count(1234567) == "1,234,567"
    assert (units.short(1_234_567), units.short(999), units.short(None)) == ("1.23 M", "999", units.UNKNOWN)
    assert (units.size(0), units.size(1536), units.size(2**50)) == ("0 B", "1.5 KiB", "1024.0 TiB")
    assert (units.duration(0.42), units.duration(125), units.duration(90_000)) == ("0.4 s", "2 min 5 s", "1 d 1 h")
    assert units.utc(0) == "1970-01-01 00:00:00.000 UTC"
    assert units.utc(2**62) == f"{2**62} ms"
    assert (units.plural(1, "record"), units.plural(2, "record")) == ("1 record", "2 records")


def test_a_console_that_everybody_could_use_is_refused() -> None:
    check(ConsoleSettings(bootstrap="b"))
    check(ConsoleSettings(bootstrap="b", host="0.0.0.0", sign_in=True, certificate="c", key="k"))
    with pytest.raises(BadSetting, match="--sign-in"):
        check(ConsoleSettings(bootstrap="b", host="0.0.0.0"))
    with pytest.raises(BadSetting, match="clear text"):
        check(ConsoleSettings(bootstrap="b", host="10.0.0.1", sign_in=True))
    assert parse_listen("[::1]:8080") == ("::1", 8080)
    for text in ("8080", "host:", "host:99999"):
        with pytest.raises(BadSetting):
            parse_listen(text)
