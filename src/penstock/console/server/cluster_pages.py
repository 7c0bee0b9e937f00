"""The pages about the cluster: overview, topics, groups."""

from __future__ import annotations

from penstock.client.errors import ClientError
from penstock.client.wire.admin import ResourceType
from penstock.client.wire.admin.configs import ConfigEntry
from penstock.client.wire.admin.group_reset import OffsetReset, ResetTarget
from penstock.console.history import EVENTS_MAX
from penstock.console.markup import Markup, address, joined, tag
from penstock.console.observe.access import ClusterAccess
from penstock.console.pages import groups as groups_page
from penstock.console.pages import layout
from penstock.console.pages import overview as overview_page
from penstock.console.pages import topics as topics_page
from penstock.console.pages.layout import ChartText, Page, Part, chart, empty, search_form, tabs
from penstock.console.server.visit import NotFound, Visit
from penstock.console.views.charts import Series, draw
from penstock.console.views.groups import GroupState, group_list, group_state, parse_reset
from penstock.console.views.overview import overview as overview_of
from penstock.console.views.topics import TopicState, setting_rows, topic_list, topic_state
from penstock.model.errors import KafkaError
from penstock.model.ids import TopicPartition

SPANS_MIN = {"15": "15 min", "60": "1 h", "360": "6 h", "1440": "1 d", "10080": "7 d", "43200": "30 d"}
TOPICS = ("Topics", "/topics")
GROUPS = ("Groups", "/groups")
_RECENT = 10


async def overview(visit: Visit) -> Page:
    visit.workspace.examine()
    view = overview_of(visit.seen)
    diagnosis = visit.workspace.diagnosis
    found = (
        overview_page.findings(None, None, ())
        if diagnosis is None
        else overview_page.findings(diagnosis.findings, diagnosis.at_ms, diagnosis.unobserved)
    )
    traffic = joined(
        tag("h2", "Traffic"),
        _spans("/", visit),
        tag("p", problem, class_="note") if (problem := visit.workspace.history_problem) else None,
        tag(
            "div",
            _chart(visit, "Records written", "/s", {"": "records"}, "records"),
            _bytes(visit),
            class_="charts",
        ),
    )
    parts = [
        Part("state", waiting(visit) if view is None else overview_page.state(view), live=True),
        Part("doctor", found, live=True),
        Part("traffic", traffic, live=True),
        Part("events", overview_page.recent(visit.workspace.events(_RECENT)), live=True),
    ]
    return Page("Overview", "overview", parts)


async def events(visit: Visit) -> Page:
    content = overview_page.events(visit.workspace.events(EVENTS_MAX))
    return Page("Events", "overview", [Part("events", content, live=True)], [("Overview", "/")])


async def topics(visit: Visit) -> Page:
    view = topic_list(visit.seen, visit.parameters)
    given = {name: value for name, value in visit.parameters.items() if name in ("q", "sort", "page", "internal")}
    parts = [
        Part("list", waiting(visit) if visit.seen.now is None else topics_page.listing(view, given), live=True),
    ]
    if not visit.live:
        parts.insert(0, Part("find", topics_page.search(view, given)))
        parts.append(Part("new", topics_page.create_form(visit.frame)))
    return Page("Topics", "topics", parts)


async def topic(visit: Visit) -> Page:
    view = await topic_of(visit)
    name = view.name
    parts = [
        Part("state", topics_page.state(view), live=True),
        Part("written", _chart(visit, "Records written", "/s", {name: name}, "written"), live=True),
    ]
    if not visit.live:
        parts.insert(0, Part("tabs", topics_page.topic_tabs(name, "partitions")))
        parts.append(Part("danger", topics_page.danger(view, visit.frame)))
    return Page(name, "topics", parts, [TOPICS])


async def topic_settings(visit: Visit) -> Page:
    view = await topic_of(visit)

    def describe(access: ClusterAccess) -> list[ConfigEntry]:
        with access.admin() as admin:
            return admin.configs.describe(ResourceType.TOPIC, view.name)

    entries = await visit.workspace.ask(describe)
    parts = [
        Part("tabs", topics_page.topic_tabs(view.name, "settings")),
        Part("settings", topics_page.settings(view.name, setting_rows(entries), visit.frame)),
    ]
    return Page(view.name, "topics", parts, [TOPICS])


async def topic_produce(visit: Visit) -> Page:
    view = await topic_of(visit)
    parts = [
        Part("tabs", topics_page.topic_tabs(view.name, "produce")),
        Part("produce", topics_page.produce_form(view, visit.frame)),
        Part("file", topics_page.file_form(view, visit.frame)),
    ]
    return Page(view.name, "topics", parts, [TOPICS])


async def groups(visit: Visit) -> Page:
    view = group_list(visit.seen, visit.parameters)
    given = {name: value for name, value in visit.parameters.items() if name in ("q", "sort", "page")}
    names = {row.name: row.name for row in view.rows}
    parts = [
        Part("list", waiting(visit) if visit.seen.now is None else groups_page.listing(view, given), live=True),
        Part(
            "lag",
            joined(
                tag("h2", "Lag over time"),
                _spans("/groups", visit),
                _chart(visit, "Lag, in records", "", names, "lag", peak=True),
            ),
            live=True,
        ),
    ]
    if not visit.live:
        parts.insert(0, Part("find", search_form("/groups", view.search)))
    return Page("Groups", "groups", parts)


async def group(visit: Visit) -> Page:
    name = visit.parameters.get("name", "")
    view = group_state(visit.seen, name)
    if view is None and not visit.live:
        view = group_state(await visit.workspace.fresh(), name)
    if view is None:
        raise NotFound(f"There is no group {name!r}.")
    partitions = {f"{name}\0{each.topic}-{each.partition}": f"{each.topic}-{each.partition}" for each in view.lags}
    history = joined(
        tag("h2", "Lag over time"),
        _spans("/group", visit),
        tag(
            "div",
            _chart(visit, "Lag, in records", "", {name: "all partitions"}, "lag", peak=True),
            _chart(visit, "Behind, in seconds", "s", {name: "the furthest partition"}, "lag-seconds", peak=True),
            _chart(visit, "Lag by partition", "", partitions, "lag-partition", peak=True)
            if len(partitions) > 1
            else None,
            class_="charts",
        ),
    )
    parts = [Part("state", groups_page.state(view), live=True), Part("history", history, live=True)]
    if not visit.live:
        parts.append(Part("reset-form", groups_page.reset_form(view, visit.parameters, visit.frame)))
        if visit.parameters.get("to") and not visit.frame.read_only:
            parts.append(Part("preview", await _preview(visit, view)))
        parts.append(Part("delete", groups_page.delete_form(view, visit.frame)))
    return Page(name or "(empty name)", "groups", parts, [GROUPS])


async def _preview(visit: Visit, view: GroupState) -> Markup:
    try:
        target = parse_reset(visit.parameters)
        resets = await visit.workspace.ask(
            lambda access: reset(
                access,
                view.row.name,
                target,
                visit.parameters.get("topic", ""),
                is_share=view.is_share,
                dry_run=True,
            )
        )
    except (ValueError, ClientError, KafkaError) as error:
        return tag("p", str(error), class_="flash error")
    return groups_page.reset_preview(view, visit.parameters, resets, visit.frame)


def reset(
    access: ClusterAccess, group_id: str, to: ResetTarget, topic: str, *, is_share: bool, dry_run: bool
) -> list[OffsetReset]:
    """In one topic, or in all that the group has read."""
    with access.admin() as admin:
        if is_share:
            return admin.share_groups.reset(group_id, to, topics=[topic] if topic else None, dry_run=dry_run)
        partitions = None
        if topic:
            (described,) = admin.topics.describe([topic])
            partitions = [TopicPartition(topic, each.partition) for each in described.partitions]
        return admin.groups.reset(group_id, to, partitions=partitions, dry_run=dry_run)


async def topic_of(visit: Visit) -> TopicState:
    name = visit.path["name"]
    seen = visit.seen
    if topic_state(seen, name) is None and not visit.live:
        seen = await visit.workspace.fresh()  # it may be newer than the last sample
    view = topic_state(seen, name)
    if view is None:
        if seen.now is None:
            raise ClientError(seen.problem or "the cluster has not been observed yet")
        raise NotFound(f"There is no topic {name!r}.")
    return view


def waiting(visit: Visit) -> Markup:
    return empty("The cluster has not been observed yet.", visit.seen.problem or "The first numbers come in a moment.")


def _minutes(visit: Visit) -> int:
    given = visit.parameters.get("minutes", "60")
    return int(given) if given in SPANS_MIN else 60


def _spans(path: str, visit: Visit) -> Markup:
    chosen = _minutes(visit)
    kept = {name: value for name, value in visit.parameters.items() if name != "minutes"}
    return tabs(
        [
            (text, address(path, **{**kept, "minutes": minutes}), int(minutes) == chosen)
            for minutes, text in SPANS_MIN.items()
        ]
    )


def _chart(visit: Visit, title: str, unit: str, names: dict[str, str], kind: str, *, peak: bool = False) -> Markup:
    """`names`: the series, and what they are called in the legend."""
    now_ms = 0 if visit.seen.now is None else visit.seen.now.at_ms
    begin_ms = now_ms - _minutes(visit) * 60_000
    found = visit.workspace.over_time(kind, list(names), begin_ms, now_ms, peak=peak)
    drawn = draw([Series(names[name], points) for name, points in found.items()], begin_ms, now_ms)
    return chart(drawn, ChartText(title, unit))


def _bytes(visit: Visit) -> Markup:
    now_ms = 0 if visit.seen.now is None else visit.seen.now.at_ms
    begin_ms = now_ms - _minutes(visit) * 60_000
    series = [
        Series(title, visit.workspace.over_time(kind, [""], begin_ms, now_ms).get("", []))
        for title, kind in (("in", "bytes_in"), ("out", "bytes_out"))
    ]
    return layout.chart(draw(series, begin_ms, now_ms), ChartText("Bytes of all brokers", "B/s"))
