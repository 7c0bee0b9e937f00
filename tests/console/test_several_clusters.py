"""Several clusters in one console: addresses that name them, a switch, and what each keeps to itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from console_process import running_console
from penstock.client.errors import BadSetting
from penstock.client.wire.admin import Acl, Admin
from penstock.console.markup import links_under, tag
from penstock.console.pages.clusters import listing
from penstock.console.pages.layout import Frame, Page, document
from penstock.console.views.clusters import CLUSTERS_MAX, Glance, NamedCluster, parse_clusters
from penstock.console.views.sample import Seen
from penstock.testing.cluster import Cluster
from penstock.testing.nodes import RunningNode

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from playwright.sync_api import Page as Tab


def test_names_of_clusters() -> None:
    assert parse_clusters(["prod=@prod-1", "a.b=h:1,h:2@?x=y", "@test"]) == (
        NamedCluster("prod", "@prod-1"),
        NamedCluster("a.b", "h:1,h:2@?x=y"),
        NamedCluster("test", "@test"),
    )
    for given, says in (
        (["h:9092"], "is not NAME=HOST:PORT"),
        (["prod="], "is not NAME=HOST:PORT"),
        (["a/b=h:1"], "a name has letters"),
        (["@/etc/file"], "a name has letters"),
        (["..=h:1"], "a name has letters"),
        (["a=h:1", "a=h:2"], "two clusters"),
        ([f"n{index}=h:1" for index in range(CLUSTERS_MAX + 1)], "at most"),
    ):
        with pytest.raises(BadSetting, match=says):
            parse_clusters(given)


def test_addresses_get_the_prefix_of_their_cluster() -> None:
    with links_under("/c/prod"):
        assert tag("a", href="/topics?q=1") == '<a href="/c/prod/topics?q=1"></a>'
        assert (
            tag("form", action="/do/x", data_stream="/s")
            == '<form action="/c/prod/do/x" data-stream="/c/prod/s"></form>'
        )
        for shared in ("/static/x.css", "/c/test/", "//elsewhere", "#main", "https://x/"):
            assert tag("a", href=shared) == f'<a href="{shared}"></a>'
        assert tag("input", value="/topics") == '<input value="/topics">'
    assert tag("a", href="/topics") == '<a href="/topics"></a>'


def test_the_switch_and_the_list() -> None:
    frame = Frame(csrf="", here="prod", others=("prod", "test"))
    html = document(Page("x", "", []), frame)
    assert '<a href="/c/test/">test</a>' in html
    assert '<a href="/c/prod/" aria-current="true">prod</a>' in html
    assert 'class="switch"' not in document(Page("x", "", []), Frame(csrf=""))
    rows = listing(
        [Glance("a", None, needs_sign_in=True), Glance("b", Seen(problem="no <b>route")), Glance("c", Seen())]
    )
    assert 'href="/c/a/sign-in"' in rows
    assert "no &lt;b&gt;route" in rows
    assert "not observed yet" in rows


def test_pages_of_several_clusters_in_a_browser(
    browser: Browser, broker: RunningNode, tmp_path: Path, unique_topic: Callable[[str], str]
) -> None:
    """One of them is not there, which does not matter to the others."""
    name = unique_topic("in-both")
    with Admin(broker.bootstrap) as admin:
        admin.topics.create(name, partitions=1)
    named = ("--cluster", f"left={broker.bootstrap}", "--cluster", f"right={broker.bootstrap}")
    with running_console(tmp_path, "127.0.0.1:1", *named, "--cluster", "gone=127.0.0.1:1") as console:
        context = browser.new_context(base_url=console.address)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.goto("/")
        assert page.locator("tbody tr").count() == 3
        page.click("a.name:has-text('left')")
        page.wait_for_url("**/c/left/")
        page.wait_for_selector("#state:has-text('1 of 1 up')")
        page.wait_for_selector("body[data-connected=yes]")
        page.click("header > nav >> text=Topics")
        page.wait_for_url("**/c/left/topics")
        page.fill("#search", name)
        page.press("#search", "Enter")
        page.click(f"a.name:has-text('{name}')")
        page.wait_for_url(f"**/c/left/topics/{name}")
        page.goto(f"/c/left/topics/{name}/produce")
        page.fill("textarea[name=value]", "hello")
        page.click("text=Send >> nth=0")
        page.wait_for_selector("text=The record is written.")
        assert page.url.endswith(f"/c/left/topics/{name}/produce")
        page.goto(f"/c/left/topics/{name}/messages")
        page.wait_for_selector("#rows tr:has-text('hello')")
        page.click(".switch summary")
        page.click(".switch a:has-text('right')")
        page.wait_for_url("**/c/right/")
        page.wait_for_selector("#state:has-text('1 of 1 up')")
        page.click(".switch summary")
        page.click("text=All clusters")
        page.wait_for_selector("tr:has-text('left'):has-text('healthy')")
        assert page.goto("/c/nowhere/").status == 404  # type: ignore[union-attr]
        cookies = {cookie["name"].rpartition("-")[2] for cookie in context.cookies()}
        assert cookies == {"left", "right"}
        context.close()
        lines = [json.loads(line) for line in console.audit_lines()]
    assert [(line["action"], line["cluster"]) for line in lines] == [("record.produce", "left")]


def test_two_clusters_with_passwords_are_signed_in_to_by_themselves(browser: Browser, tmp_path: Path) -> None:
    """Both know a user of the same name, with other passwords and rights."""
    pytest.importorskip("cryptography", reason="the extra `security` is not installed")
    passwords = {"left": "left horse battery", "right": "right horse battery"}

    def sign_in(page: Tab, where: str, password: str) -> None:
        page.goto(f"/c/{where}/")
        page.wait_for_url(f"**/c/{where}/sign-in")
        page.fill("input[name=user]", "ada")
        page.fill("input[name=password]", password)
        page.click("button:has-text('Sign in')")

    with (
        Cluster(brokers=1, users={"ada": passwords["left"]}) as left,
        Cluster(brokers=1, users={"ada": passwords["right"]}) as right,
    ):
        named: list[str] = []
        for name, cluster in (("left", left), ("right", right)):
            with cluster.admin() as admin:
                admin.topics.create(f"only-{name}", partitions=1)
                operation = "ALL" if name == "left" else "READ"
                admin.acls.create(
                    [Acl(principal="User:ada", operation=operation, resource_type="TOPIC", resource=f"only-{name}")]
                )
            named += ["--cluster", f"{name}=@{cluster.client_file()}"]
        with running_console(tmp_path, "127.0.0.1:1", "--sign-in", *named) as console:
            context = browser.new_context(base_url=console.address)
            page = context.new_page()
            page.goto("/")
            assert page.locator("a:has-text('Sign in')").count() == 2
            sign_in(page, "left", passwords["right"])
            assert "refused this user" in page.locator(".flash.error").inner_text()
            sign_in(page, "left", passwords["left"])
            page.wait_for_selector("text=Sign out")
            assert page.goto("/c/right/topics").url.endswith("/c/right/sign-in")  # type: ignore[union-attr]
            sign_in(page, "right", passwords["right"])
            page.wait_for_selector("text=Sign out")
            for name, other in (("left", "right"), ("right", "left")):
                page.goto(f"/c/{name}/topics")
                page.wait_for_selector(f"a:has-text('only-{name}')")
                assert page.locator(f"a:has-text('only-{other}')").count() == 0
                page.goto(f"/c/{name}/topics/only-{name}/produce")
                page.fill("textarea[name=value]", f"for {name}")
                page.click("text=Send >> nth=0")
                says = "The record is written." if name == "left" else "AUTHORIZATION_FAILED"
                page.wait_for_selector(f".flash:has-text('{says}')")
            page.goto("/")
            page.wait_for_selector("tr:has-text('left'):has-text('healthy')")
            page.wait_for_selector("tr:has-text('right'):has-text('healthy')")

            page.goto("/c/left/topics")
            page.click("text=Sign out")
            page.wait_for_url("**/c/left/sign-in")
            page.goto("/c/right/topics")
            page.wait_for_selector("a:has-text('only-right')")
            context.close()
            lines = [json.loads(line) for line in console.audit_lines()]
    assert [(line["cluster"], line["action"], line["result"][:2]) for line in lines] == [
        ("left", "sign-in", "re"),
        ("left", "sign-in", "ok"),
        ("right", "sign-in", "ok"),
        ("left", "record.produce", "ok"),
        ("right", "record.produce", "re"),
        ("left", "sign-out", "ok"),
    ]
