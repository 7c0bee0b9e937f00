"""A console of a cluster with passwords and ACLs: people sign in as users of the cluster, and may do what those may."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from console_process import running_console
from penstock.client.wire.admin import Acl
from penstock.testing.cluster import Cluster

pytest.importorskip("starlette", reason="the extra `console` is not installed")
pytest.importorskip("cryptography", reason="the extra `security` is not installed")

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PASSWORD = "correct horse battery"


def sign_in(page: Page, user: str, password: str) -> None:
    page.goto("/")
    page.wait_for_url("**/sign-in")
    page.fill("input[name=user]", user)
    page.fill("input[name=password]", password)
    page.click("button:has-text('Sign in')")


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
