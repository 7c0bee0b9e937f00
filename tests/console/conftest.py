"""A console as a process, one for all tests of this folder, and real browsers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from console_process import RunningConsole, running_console

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from penstock.testing.nodes import RunningNode


@pytest.fixture(scope="session")
def console(broker: RunningNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    with running_console(tmp_path_factory.mktemp("console"), broker.bootstrap) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for each file: while it runs, Playwright keeps an event loop in this thread, and no test may have its own."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Browser, console: RunningConsole) -> Iterator[Page]:
    """A tab whose script must not fail, and which must not break the page's own security policy."""
    context = browser.new_context(base_url=console.address)
    tab = context.new_page()
    tab.set_default_timeout(30_000)
    problems: list[str] = []
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on(
        "console",
        lambda message: (
            problems.append(message.text) if message.type == "error" and "Content Security" in message.text else None
        ),
    )
    yield tab
    context.close()
    assert problems == []
