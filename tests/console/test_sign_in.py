"""A console of a cluster with passwords and ACLs: people sign in as users of the cluster, and may do what those may."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from console_process import running_console
from penstock.client.wire.admin import Acl
from penstock.testing.cluster import Cluster
from waiting import wait_until

pytest.importorskip("starlette", reason="the extra `console` is not installed")
pytest.importorskip("cryptography", reason="the extra `security` is not installed")

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PASSWORD = "correct horse battery"
ESTABLISHED = "01"


def sign_in(page: Page, user: str, password: str) -> None:
    page.goto("/")
    page.wait_for_url("**/sign-in")
    page.fill("input[name=user]", user)
    page.fill("input[name=password]", password)
    page.click("button:has-text('Sign in')")


def connections_to(process_id: int, ports: set[int]) -> int:
    """How many open connections this process has to these ports."""
    inodes = set()
    for each in Path(f"/proc/{process_id}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            inodes.add(each.readlink().name.removeprefix("socket:[").removesuffix("]"))
    rows = [line.split() for line in Path(f"/proc/{process_id}/net/tcp").read_text().splitlines()[1:]]
    return sum(
        row[3] == ESTABLISHED and row[9] in inodes and int(row[2].rpartition(":")[2], 16) in ports for row in rows
    )


def test_users_see_and_do_what_the_cluster_lets_them(browser: Browser, tmp_path: Path) -> None:
    with Cluster(brokers=1, users={"ada": PASSWORD, "bob": PASSWORD}) as cluster:
        with cluster.admin() as admin:
            admin.topics.create("secret", partitions=1)
            admin.topics.create("shared", partitions=1)
            rights = [("ada", "secret", "ALL"), ("ada", "shared", "ALL"), ("bob", "shared", "READ")]
            admin.acls.create(
                Acl(principal=f"User:{user}", operation=operation, resource_type="TOPIC", resource=topic)
                for user, topic, operation in rights
            )
        with running_console(tmp_path, f"@{cluster.client_file()}", "--sign-in") as console:
            contexts = {user: browser.new_context(base_url=console.address) for user in ("ada", "bob")}
            ada, bob = (contexts[user].new_page() for user in ("ada", "bob"))
            assert bob.request.get("/topics/secret/messages/stream").status == 401

            sign_in(bob, "bob", "wrong")
            assert "refused this user, password or token" in bob.locator(".flash.error").inner_text()
            sign_in(bob, "bob", PASSWORD)
            bob.wait_for_selector("text=Sign out")
            bob.goto("/topics")
            bob.wait_for_selector("a:has-text('shared')")
            assert bob.locator("a:has-text('secret')").count() == 0
            assert bob.goto("/topics/secret/messages").status == 404  # type: ignore[union-attr]
            bob.goto("/topics/shared/produce")
            bob.fill("textarea[name=value]", "from bob")
            bob.click("text=Send")
            assert "AUTHORIZATION_FAILED" in bob.locator(".flash.error").inner_text()

            sign_in(ada, "ada", PASSWORD)
            ada.goto("/topics/secret/produce")
            ada.fill("textarea[name=value]", "for ada only")
            ada.click("text=Send")
            ada.wait_for_selector("text=The record is written.")
            ada.goto("/topics/secret/messages")
            ada.wait_for_selector("#rows tr")
            assert "for ada only" in ada.locator("#rows").inner_text()
            cookie = contexts["ada"].cookies()[0]
            ada.click("text=Sign out")
            ada.wait_for_url("**/sign-in")
            contexts["ada"].add_cookies([{"name": cookie["name"], "value": cookie["value"], "url": console.address}])
            ada.goto("/topics")
            ada.wait_for_url("**/sign-in")
            for context in contexts.values():
                context.close()
            lines = [json.loads(line) for line in console.audit_lines()]
    assert [(line["user"], line["action"], line["result"][:7]) for line in lines] == [
        ("bob", "sign-in", "refused"),
        ("bob", "sign-in", "ok"),
        ("bob", "record.produce", "refused"),
        ("ada", "sign-in", "ok"),
        ("ada", "record.produce", "ok"),
        ("ada", "sign-out", "ok"),
    ]
    assert PASSWORD not in (tmp_path / "audit.jsonl").read_text()
    assert b"for ada only" not in (tmp_path / "history.sqlite").read_bytes()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at the connections of a process")
def test_connections_end_with_the_last_session_of_their_user(browser: Browser, tmp_path: Path) -> None:
    """At once, also those of a topic that is followed in another tab; and that tab says that one must sign in."""
    with Cluster(brokers=1, users={"ada": PASSWORD}) as cluster:
        with cluster.admin() as admin:
            admin.topics.create("orders", partitions=1)
            admin.acls.create(
                Acl(principal="User:ada", operation="ALL", resource_type=kind, resource="*")
                for kind in ("TOPIC", "GROUP")
            )
        ports = {int(address.rpartition(":")[2]) for address in cluster.bootstrap.split(",")}
        with running_console(tmp_path, f"@{cluster.client_file()}", "--sign-in") as console:
            process_id = console.process.pid
            contexts = [browser.new_context(base_url=console.address) for _ in range(2)]
            first, elsewhere = (context.new_page() for context in contexts)
            for page in (first, elsewhere):
                sign_in(page, "ada", PASSWORD)
                page.wait_for_selector("body[data-connected=yes]", state="attached")
            followed, overview = contexts[0].new_page(), contexts[0].new_page()
            followed.goto("/topics/orders/messages?follow=1")
            followed.wait_for_selector("#status:has-text('following: ')")
            overview.goto("/")
            overview.wait_for_selector("body[data-connected=yes]", state="attached")
            assert connections_to(process_id, ports) > 0

            first.click("text=Sign out")
            first.wait_for_url("**/sign-in")
            overview.wait_for_url("**/sign-in")
            followed.wait_for_selector("body[data-search=done]", state="attached")
            elsewhere.goto("/topics")
            elsewhere.wait_for_selector("a:has-text('orders')")

            elsewhere.click("text=Sign out")
            elsewhere.wait_for_url("**/sign-in")
            wait_until(lambda: connections_to(process_id, ports) == 0, "all connections are closed", seconds=1)
            for context in contexts:
                context.close()
