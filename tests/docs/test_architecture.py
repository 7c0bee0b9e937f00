"""The map of the code is true: every function it links to is where the link says, every package is on it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "architecture").glob("*.md"))]
PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:md|toml|lock))`")
MADE = ("build/site",)
LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)(?:#[^)]*)?\)")


def links() -> Iterator[tuple[str, str, Path]]:
    for page in PAGES:
        for text, target in LINK.findall(page.read_text(encoding="utf-8")):
            if "://" not in target:
                yield page.name, text.strip("`"), (page.parent / target).resolve()


@cache
def defined_in(path: Path) -> set[str]:
    """Functions, classes and `Class.method`s of a module; its own name stands for all of it."""
    names = {path.stem, path.parent.name}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
            names |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.AsyncFunctionDef)}
    return names


@pytest.mark.parametrize("page", [page.name for page in PAGES])
def test_links_lead_to_what_they_name(page: str) -> None:
    found = [(text, target) for name, text, target in links() if name == page]
    assert found
    missing = [str(target) for _, target in found if not target.exists()]
    assert missing == []
    wrong = [f"{text} is not in {target}" for text, target in found if not names(text, target)]
    assert wrong == []


def test_every_package_is_on_the_map() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    packages = [path.parent.name for path in (ROOT / "src" / "penstock").glob("*/__init__.py")]
    assert [name for name in sorted(packages) if f"`{name}/`" not in text] == []


def test_contributing_names_files_that_exist() -> None:
    """Paths of the repository, or below `src/penstock`; NAME is the file that a contributor adds."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = {path for path in PATH.findall(text) if path not in MADE}
    assert named
    missing = []
    for path in named:
        present = str(Path(path).parent) if "NAME" in path else path
        if not any((root / present).exists() for root in (ROOT, ROOT / "src" / "penstock")):
            missing.append(path)
    assert missing == []


def names(text: str, target: Path) -> bool:
    """A link to code names the file, or something that is defined in it."""
    if target.suffix != ".py":
        return True
    module = target.parent if target.name == "__init__.py" else target.with_suffix("")
    return module.as_posix().endswith(f"/{text}") or text in defined_in(target)
