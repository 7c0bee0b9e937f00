"""The map of the code, drawn from the import graph: packages with their modules, and which package imports which."""

from __future__ import annotations

import ast
from pathlib import Path

import grimp

SOURCE = Path(__file__).parents[1] / "src" / "penstock"
NOTICE = "<!-- Generated from the code by `make docs`. -->"


def modules_page() -> str:
    lines = [
        NOTICE,
        "",
        "# Packages and modules",
        "",
        "An arrow is an import; those that follow from others are left out. Imports point down only. `make check`",
        "enforces it with import-linter, inside the large packages, too.",
        "",
        "```mermaid",
        "flowchart TD",
        *[f"    {importer} --> {imported}" for importer, imported in _edges()],
        "```",
    ]
    for package in _packages():
        lines += ["", f"## {package}", "", f"{_summary(SOURCE / package / '__init__.py')}".strip()]
        rows = [(path, _summary(path)) for path in sorted((SOURCE / package).rglob("*.py"))]
        lines += ["", "| module | |", "|---|---|"]
        lines += [f"| {_link(path)} | {text} |" for path, text in rows if path.name != "__init__.py" and text]
    return "\n".join(line for line in lines if line is not None) + "\n"


def _packages() -> list[str]:
    return sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))


def _edges() -> list[tuple[str, str]]:
    """Direct imports between packages, without those that a longer way makes superfluous."""
    graph = grimp.build_graph("penstock")
    packages = _packages()
    for package in packages:
        graph.squash_module(f"penstock.{package}")
    direct = {
        package: {
            other
            for other in packages
            if graph.direct_import_exists(importer=f"penstock.{package}", imported=f"penstock.{other}")
        }
        - {package}
        for package in packages
    }

    def reached(start: str) -> set[str]:
        return direct[start].union(*(reached(step) for step in direct[start]))

    return [
        (package, imported)
        for package in packages
        for imported in sorted(direct[package])
        if not any(imported in reached(other) for other in direct[package])
    ]


def _link(path: Path) -> str:
    name = path.relative_to(SOURCE / path.relative_to(SOURCE).parts[0]).with_suffix("").as_posix()
    return f"[`{name}`](../src/penstock/{path.relative_to(SOURCE).as_posix()})"


def _summary(path: Path) -> str:
    """The first sentence of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    first = " ".join(docstring.split("\n\n")[0].split())
    end = first.find(". ")
    return (first if end < 0 else first[: end + 1]).replace("|", "\\|")
