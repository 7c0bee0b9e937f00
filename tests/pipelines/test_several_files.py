"""`penstock pipeline test` and `run` of several files: which tests run, with which settings; what is checked first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock import Admin
from penstock.cli.output import CommandFailed
from penstock.cli.pipeline_run import check_topics
from penstock.cli.pipeline_test import chosen, shared_settings
from penstock.pipelines.check.validate import load_checked
from penstock.pipelines.spec.loading import load

if TYPE_CHECKING:
    from conftest import CommandLine

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


RUN = """\
name: {name}
bootstrap: {bootstrap}
sources:
  one: {{topic: {source}, value: {{format: json, schema: "id BIGINT"}}}}
sinks:
  out: {{from: one, topic: {sink}}}
"""


def test_what_is_missing_is_told_before_spark_starts(
    tmp_path: Path,
    bootstrap: str,
    unique_topic: Callable[[str], str],
    cli: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("penstock.cli.pipeline._session", lambda *_: pytest.fail("Spark was started"))
    made, between, missing = unique_topic("made"), unique_topic("between"), "nowhere"
    with Admin(bootstrap) as admin:
        admin.topics.create(made, partitions=1)
        admin.topics.create(between, partitions=1)

    def written(stem: str, **fields: str) -> str:
        file = tmp_path / f"{stem}.yaml"
        file.write_text(RUN.format(**{"name": file.stem, "bootstrap": bootstrap, **fields}))
        return str(file)

    first = written("first", source=made, sink=between)
    second = written("second", source=between, sink=made)
    third = written("third", source=missing, sink=made)
    status, _, err = cli("pipeline", "run", first, second, third, "--once")
    way_out = f"correct the name in {third}, or create it: penstock topics create {missing}"
    assert (status, err.splitlines()[-1]) == (1, f"penstock: third: {bootstrap} has no topic {missing}; {way_out}")
    effects = {True: "ends the run", False: "makes its query fail until there is one"}
    letters = (
        "first: there is no topic for dead letters, so the first one {}: penstock topics create first.dead-letters"
    )
    assert letters.format(effects[True]) in err.splitlines()
    capsys.readouterr()
    check_topics(load_checked(first)[0], bootstrap, once=False)
    assert letters.format(effects[False]) in capsys.readouterr().err.splitlines()

    close = written("close", source=made, sink=f"{between}x")
    status, _, err = cli("pipeline", "run", close, "--once")
    assert status == 1
    assert f'close: {bootstrap} has no topic {between}x (did you mean "{between}"?); ' in err.splitlines()[-1]

    away = written("away", source=made, sink=between, bootstrap="127.0.0.1:1")
    status, _, err = cli("pipeline", "run", away, "--once")
    why = "cannot connect to 127.0.0.1:1: Connection refused"
    to_do = f"start the brokers, or correct bootstrap in {away}"
    assert (status, err.splitlines()[-1]) == (1, f"penstock: away: {why}; {to_do}")

    elsewhere = written("elsewhere", source=made, sink=f'{made}, options: {{kafka.bootstrap.servers: "127.0.0.1:1"}}')
    status, _, err = cli("pipeline", "run", elsewhere, "--once")
    to_do = f"start the brokers, or correct bootstrap in {elsewhere}"
    assert (status, err.splitlines()[-1]) == (1, f"penstock: elsewhere: {why}; {to_do}")

    namesake = written("other", name="first", source=made, sink=between)
    status, _, err = cli("pipeline", "run", first, namesake)
    assert (status, err.splitlines()[-1]) == (1, f'penstock: {first}, {namesake}: 2 pipelines are called "first"')

    status, _, err = cli("pipeline", "run", first, second, "--from", "earliest", "--as", "again")
    assert (status, err.splitlines()[-1]) == (1, "penstock: a backfill is of one pipeline")
