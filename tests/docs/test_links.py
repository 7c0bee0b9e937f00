"""Links between pages lead somewhere, to the very heading, and all pages are in the site's navigation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^]]*\]\(([^)\s]+)\)|<img[^>]* src=\"([^\"]+)\"")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


def prose(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchor(heading: str) -> str:
    """As Python-Markdown makes it, and GitHub does for all that our headings have in them."""
    text = re.sub(r"[`*]|\]\([^)]*\)|[\[\]]", "", heading)
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())


def links(page: Path) -> Iterator[str]:
    for inline, image in LINK.findall(prose(page)):
        yield inline or image


def within(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=within)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"https?:|mailto:", link):
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{within(page)}: {link}"
        if fragment:
            headings = {anchor(heading) for heading in HEADING.findall(prose(target))}
            assert fragment in headings, f"{within(page)}: {link}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.is_relative_to(DOCS)], ids=within)
def test_pages_of_the_site_link_within_it(page: Path) -> None:
    """What stands outside docs/ is not on the site."""
    for link in links(page):
        if not re.match(r"https?:|mailto:|#", link):
            assert (page.parent / link.partition("#")[0]).resolve().is_relative_to(DOCS), f"{within(page)}: {link}"


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    named = re.findall(r": (\S+\.md)$", navigation, re.MULTILINE)
    assert len(set(named)) == len(named)
    assert set(named) == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}


def test_every_picture_is_shown() -> None:
    shown = {(page.parent / link).resolve() for page in PAGES for link in links(page) if link.endswith(".svg")}
    assert shown >= set(DOCS.glob("pictures/*.svg"))
