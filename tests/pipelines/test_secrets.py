"""Secrets are used and never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.client.access import open_access
from penstock.pipelines.check.analysis import analyse
from penstock.pipelines.check.checks import check
from penstock.pipelines.check.query_plan import plan
from penstock.pipelines.engine.failures import message_of
from penstock.pipelines.operate import graph
from penstock.pipelines.spec.loading import dumped, load
from penstock.pipelines.spec.secrets import Secret, SecretMissing, plain, plain_of_topic, redacted

VALUE = "hunter2-correct-horse"


def test_a_secret_is_revealed_to_spark_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", VALUE)
    (tmp_path / "key").write_text("staple-battery\n")
    file = tmp_path / "orders.yaml"
    file.write_text(
        f"""\
name: orders
parameters: {{password: "${{secret:env:DB_PASSWORD}}"}}
sources:
  orders:
    format: jdbc
    mode: snapshot
    options: {{url: "jdbc:x?password=${{password}}", key: "${{secret:file:{tmp_path}/key}}", fetchsize: 10}}
sinks: {{out: {{from: orders, topic: out}}}}
"""
    )

    pipeline = load(str(file)).pipeline
    options = pipeline.sources["orders"].options
    analysis = analyse(pipeline)
    queries = plan(pipeline, analysis)
    shown = [repr(pipeline), str(options), dumped(pipeline), graph.tree(pipeline, analysis, queries)]
    revealed = plain(options)

    assert revealed == {"url": f"jdbc:x?password={VALUE}", "key": "staple-battery", "fetchsize": "10"}
    assert not any(VALUE in text or "staple" in text for text in [*shown, repr(pipeline), repr(options)])
    assert redacted(f"cannot reach jdbc:x?password={VALUE}: staple-battery") == "cannot reach jdbc:x?password=***: ***"


def test_a_secret_is_not_shown_where_a_message_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONG_SECRET", "correct-horse-battery")
    assert Secret("${secret:env:LONG_SECRET}").reveal() == "correct-horse-battery"
    for before in range(470, 500):
        assert "correct" not in message_of(ValueError("x" * before + "correct-horse-battery"))


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("${secret:env:NOT_THERE}", "secret:env:NOT_THERE: the environment has no variable NOT_THERE"),
        ("${secret:file:/no/such/file}", "secret:file:/no/such/file: No such file or directory"),
    ],
)
def test_a_secret_that_is_not_there(template: str, message: str) -> None:
    with pytest.raises(SecretMissing, match=message):
        Secret(template).check(environment={})


def test_the_secrets_of_clients_stay_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark shows options in plans, so the address of a secured cluster has references only."""
    monkeypatch.setenv("KAFKA_PASSWORD", VALUE)
    file = tmp_path / "orders.yaml"
    file.write_text(
        """\
name: orders
bootstrap: kafka-1:9093
client:
  security.protocol: SASL_SSL
  sasl.mechanism: SCRAM-SHA-512
  sasl.username: orders
  sasl.password: ${secret:env:KAFKA_PASSWORD}
sources:
  orders:
    topic: orders
    options: {kafka.ssl.key.password: "${secret:env:KAFKA_PASSWORD}", kafka.group.id: "${secret:env:KAFKA_PASSWORD}"}
sinks: {out: {from: orders, topic: out}}
"""
    )
    pipeline = load(str(file)).pipeline

    assert check(pipeline) == []
    assert pipeline.cluster == (
        "kafka-1:9093@?security.protocol=SASL_SSL&sasl.mechanism=SCRAM-SHA-512&sasl.username=orders"
        "&sasl.password=${secret:env:KAFKA_PASSWORD}"
    )
    assert pipeline.at("kafka-2:9093").startswith("kafka-2:9093@?security.protocol")
    assert pipeline.at("@prod") == "@prod"
    assert open_access(pipeline.cluster).properties["sasl.password"] == VALUE
    assert plain_of_topic(pipeline.sources["orders"].options) == {
        "kafka.ssl.key.password": "${secret:env:KAFKA_PASSWORD}",
        "kafka.group.id": VALUE,  # not about security, so only Spark's option can say it
    }


@pytest.mark.parametrize(
    ("client", "message"),
    [
        (f"sasl.password: {VALUE}", "sasl.password is a secret and cannot be part of an address"),
        ("ssl.client.auth: none", "clients have no security setting ssl.client.auth"),
    ],
)
def test_mistakes_in_settings_of_clients(tmp_path: Path, client: str, message: str) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(
        f"name: orders\nclient: {{{client}}}\nsources: {{orders: {{topic: orders}}}}\n"
        "sinks: {out: {from: orders, topic: out}}\n"
    )
    (finding,) = check(load(str(file)).pipeline)
    assert message in finding.message and VALUE not in finding.message
