"""The site is made without a warning, and needs nothing from elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("zensical", reason="the extra docs is not installed")

ROOT = Path(__file__).parents[2]
# What a browser fetches by itself; links that people may follow are something else.
FETCHED = re.compile(r"<(?:script|img|iframe)[^>]* src=\"(https?:[^\"]+)|<link[^>]* href=\"(https?:[^\"]+)")


def test_the_site_is_complete(tmp_path: Path) -> None:
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    result = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "warning" not in (result.stdout + result.stderr).lower()

    site = tmp_path / "build" / "site"
    for page in (ROOT / "docs").rglob("*.md"):
        html = (site / page.relative_to(ROOT / "docs")).with_suffix(".html").read_text(encoding="utf-8")
        assert [first or second for first, second in FETCHED.findall(html)] == []
    assert not list(site.rglob("*.py"))
    assert (site / "pictures" / "topic.svg").exists()
    assert (site / "grafana" / "penstock.json").exists()
