"""`penstock pipeline test` of several files: which tests run, with which settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.output import CommandFailed
from penstock.cli.pipeline_test import chosen, shared_settings
from penstock.pipelines.spec.loading import load

FILE = """\
name: {name}
spark: {{spark.driver.memory: {memory}, {name}.own: yes}}
tests:
  - {{name: first, given: {{}}}}
  - {{name: of {name}, given: {{}}}}
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    made = []
    for name, memory in (("a", "1g"), ("b", "1g"), ("c", "2g")):
        (tmp_path / f"{name}.yaml").write_text(FILE.format(name=name, memory=memory))
        made.append(str(tmp_path / f"{name}.yaml"))
    return made


def test_names_of_tests_are_for_all_files(files: list[str]) -> None:
    a, b, _ = files

    def names(*arguments: str) -> list[tuple[str, tuple[str, ...]]]:
        return [(each.loaded.pipeline.name, each.names) for each in chosen(arguments, load)]

    assert names(a, b) == [("a", ("first", "of a")), ("b", ("first", "of b"))]
    assert names(a, b, "first") == [("a", ("first",)), ("b", ("first",))]
    assert names(a, b, "of b") == [("a", ()), ("b", ("of b",))]
    with pytest.raises(CommandFailed, match="has no test 'other', only: first, of a"):
        names(a, "other")
    with pytest.raises(CommandFailed, match="first: no such file"):
        names("first")


def test_one_session_has_the_settings_of_all(files: list[str]) -> None:
    a, b, c = map(load, files)

    assert shared_settings([a, b]) == {"spark.driver.memory": "1g", "a.own": "yes", "b.own": "yes"}
    with pytest.raises(CommandFailed, match=r"a\.yaml and .*c\.yaml set spark\.driver\.memory differently"):
        shared_settings([a, b, c])
