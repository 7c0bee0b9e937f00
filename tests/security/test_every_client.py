"""Every client on every protocol and mechanism, at one broker with ACLs: each writes a record, and its user is right.

For the broker and its users see `every_broker`, for signed bearer tokens `test_oauthbearer`. What was written is read
at the end.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import time
import warnings
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import Producer

from penstock.arrow import read_table
from penstock.client.wire.admin import Acl, Admin
from security.every_broker import CASES, PASSWORD, TOPIC, USERS, Broker, Case, every_broker, token
from security.sasl_world import HAS_OAUTH
from spark.connector_jars import broker_jars

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it loads its message schemas in a way Python has deprecated
    from kafka import KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokenProvider

    from clients.drivers.java import QUICK_START, JavaClient, class_path
    from clients.drivers.kafkajs import DIRECTORY as KAFKAJS
    from clients.drivers.kafkajs import why_not_installed

pytestmark = pytest.mark.skipif(not HAS_OAUTH, reason="the extra penstock[security] is not installed")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with every_broker(tmp_path_factory.mktemp("every")) as running:
        yield running


def values(broker: Broker) -> list[str]:
    return [str(value) for value in read_table(broker.admin, TOPIC, value="string")["value"].to_pylist()]


each_case = pytest.mark.parametrize("case", CASES, ids=str)


@each_case
def test_confluent_kafka(broker: Broker, case: Case) -> None:
    delivered: list[Any] = []
    settings = broker.librdkafka(case)
    if case.mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = lambda _: (token(case.user), time.time() + 3600)
    producer = Producer(settings)
    producer.produce(TOPIC, f"confluent-kafka {case}", on_delivery=lambda error, _: delivered.append(error))
    assert producer.flush(60) == 0
    assert delivered == [None]
    assert f"confluent-kafka {case}" in values(broker)


@each_case
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python(broker: Broker, case: Case) -> None:
    class Tokens(KafkaPythonTokenProvider):  # type: ignore[misc]  # it has no types
        def token(self) -> str:
            return token(case.user)

    login: dict[str, Any] = {}
    if case.mechanism == "OAUTHBEARER":
        login = {"sasl_oauth_token_provider": Tokens()}
    elif case.mechanism:
        login = {"sasl_plain_username": case.user, "sasl_plain_password": PASSWORD}
    producer = KafkaProducer(
        bootstrap_servers=broker.address(case),
        security_protocol=case.protocol,
        sasl_mechanism=case.mechanism or None,
        ssl_context=broker.context(case),
        **login,
    )
    try:
        producer.send(TOPIC, f"kafka-python {case}".encode()).get(60)
    finally:
        producer.close()
    assert f"kafka-python {case}" in values(broker)


@each_case
def test_aiokafka(broker: Broker, case: Case) -> None:
    class Tokens(AbstractTokenProvider):  # type: ignore[misc]  # it has no types
        async def token(self) -> str:
            return token(case.user)

    login: dict[str, Any] = {}
    if case.mechanism == "OAUTHBEARER":
        login = {"sasl_mechanism": case.mechanism, "sasl_oauth_token_provider": Tokens()}
    elif case.mechanism:
        login = {
            "sasl_mechanism": case.mechanism,
            "sasl_plain_username": case.user,
            "sasl_plain_password": PASSWORD,
        }

    async def write() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=broker.address(case),
            security_protocol=case.protocol,
            ssl_context=broker.context(case),
            **login,
        ) as producer:
            await producer.send_and_wait(TOPIC, f"aiokafka {case}".encode())

    asyncio.run(write())
    assert f"aiokafka {case}" in values(broker)


def test_kafkajs(broker: Broker) -> None:
    if reason := why_not_installed():
        pytest.skip(reason)
    authority, own = ((broker.directory / name).read_text() for name in ("ca.pem", "client.pem"))
    asked = []
    for case in CASES:
        tls: dict[str, Any] = {"ca": [authority]}
        if case.protocol == "SSL":
            tls |= {"key": own, "cert": own}
        sasl: dict[str, str] = {"mechanism": case.mechanism.lower()}
        if case.mechanism == "OAUTHBEARER":
            sasl["token"] = token(case.user)
        else:
            sasl |= {"username": case.user, "password": PASSWORD}
        asked.append(
            {
                "bootstrap": broker.address(case),
                "topic": TOPIC,
                "value": f"kafkajs {case}",
                "ssl": None if case.protocol == "SASL_PLAINTEXT" else tls,
                "sasl": sasl if case.mechanism else None,
            }
        )
    command = ["node", "logins.js"]
    done = subprocess.run(command, input=json.dumps(asked), cwd=KAFKAJS, capture_output=True, text=True, timeout=120)
    answers = json.loads(done.stdout)
    assert all(isinstance(answer, int) for answer in answers), dict(zip(map(str, CASES), answers, strict=True))
    assert {f"kafkajs {case}" for case in CASES} <= set(values(broker))


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (Debian: apt install kcat)")
def test_kcat(broker: Broker) -> None:
    shown = subprocess.run(["kcat", "-V"], capture_output=True, text=True, timeout=60)
    version = re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", shown.stdout + shown.stderr)
    # Before, librdkafka sent its part of the nonce twice, which Kafka refuses since CVE-2024-56128.
    has_scram = version is not None and tuple(map(int, version.groups())) >= (2, 6, 1)
    cases = [case for case in CASES if has_scram or not case.mechanism.startswith("SCRAM")]
    for case in cases:
        settings = broker.librdkafka(case)
        if case.mechanism == "OAUTHBEARER":
            settings |= {
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
                "sasl.oauthbearer.config": f"principal={case.user}",
            }
        options = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
        command = ["kcat", "-P", "-t", TOPIC, "-p", "0", *options]
        done = subprocess.run(command, input=f"kcat {case}", capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{case}: {done.stderr}"
    assert {f"kcat {case}" for case in cases} <= set(values(broker))


# -- Java -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def java(broker: Broker) -> Iterator[JavaClient]:
    class_path()  # skips where there is no Java
    with closing(JavaClient(broker.admin)) as client:
        yield client


def tool(java: JavaClient, name: str, *arguments: str) -> str:
    outcome = java.call("tool", name=name, arguments=list(arguments))
    assert outcome["status"] == 0, outcome["output"]
    return str(outcome["output"])


def test_java(broker: Broker, java: JavaClient) -> None:
    for case in CASES:
        payload = broker.directory / "payload"
        payload.write_text(f"java {case}\n")
        written = tool(
            java,
            "ProducerPerformance",
            *("--topic", TOPIC, "--num-records", "1", "--throughput", "-1", "--payload-file", str(payload)),
            *("--producer-props", f"bootstrap.servers={broker.address(case)}", "--producer.config", broker.java(case)),
        )
        assert "1 records sent" in written, (str(case), written)
    assert {f"java {case}" for case in CASES} <= set(values(broker))


def administrator(broker: Broker) -> tuple[str, ...]:
    """The options of Kafka's tools for a user that may administrate."""
    case = Case("SASL_SSL", "SCRAM-SHA-512")
    with Admin(broker.admin) as admin:
        admin.acls.create(
            Acl(
                principal=f"User:{case.user}",
                operation=operation,
                resource_type="CLUSTER",
                resource="kafka-cluster",
                pattern="LITERAL",
            )
            for operation in ("ALTER", "DESCRIBE", "ALTER_CONFIGS", "DESCRIBE_CONFIGS")
        )
    return ("--bootstrap-server", broker.address(case), "--command-config", broker.java(case))


def test_kafkas_tools(broker: Broker, java: JavaClient) -> None:
    """ACLs and tokens, each with the tool of Kafka's for it, over SASL_SSL, by a user that may."""
    where = administrator(broker)
    tool(java, "AclCommand", *where, "--add", "--allow-principal", "User:new", "--producer", "--topic", "new")
    listed = tool(java, "AclCommand", *where, "--list", "--topic", "new")
    assert "(principal=User:new, host=*, operation=WRITE, permissionType=ALLOW)" in listed
    tool(java, "AclCommand", *where, "--remove", "--force", "--topic", "new")
    assert "User:new" not in tool(java, "AclCommand", *where, "--list", "--topic", "new")

    created = tool(java, "DelegationTokenCommand", *where, "--create", "--max-life-time-period", "-1")
    token_id, hmac = created.strip().splitlines()[-1].split()[:2]
    tokens = ("--renew", "--renew-time-period", "60000", "--hmac", hmac)
    assert "Completed renew operation" in tool(java, "DelegationTokenCommand", *where, *tokens)
    # Without an owner the tool asks for the tokens of no user.
    described = ("--describe", "--owner-principal", f"User:{USERS['SCRAM-SHA-512']}")
    assert token_id in tool(java, "DelegationTokenCommand", *where, *described)
    ended = ("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert "Completed expire operation" in tool(java, "DelegationTokenCommand", *where, *ended)
    assert token_id not in tool(java, "DelegationTokenCommand", *where, *described)


@pytest.mark.soak  # Maven finds the jars of kafka-configs, and seven JVMs start
@pytest.mark.timeout(600)
def test_kafka_configs_of_users(broker: Broker) -> None:
    """Passwords and quotas of a user. (The tool is part of the broker's jar, and `JavaClient` does not have it.)"""
    java = ["java", *QUICK_START, "-cp", ":".join(broker_jars()), "kafka.admin.ConfigCommand", *administrator(broker)]

    def configs(*arguments: str) -> str:
        command = [*java, *arguments, "--entity-type", "users", "--entity-name", "new"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    with Admin(broker.admin) as admin:
        # In two requests: Kafka, too, refuses one that names a user twice.
        configs("--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=news-password]")
        configs("--alter", "--add-config", "SCRAM-SHA-512=[password=news-password]")
        (user,) = (user for user in admin.users.list() if user.name == "new")
        assert user.mechanisms == {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 4096}
        configs("--alter", "--add-config", "producer_byte_rate=1048576")
        described = configs("--describe")
        assert "iterations=8192" in described
        assert "producer_byte_rate=1048576" in described
        for setting in ("producer_byte_rate", "SCRAM-SHA-256", "SCRAM-SHA-512"):  # the tool takes one kind at a time
            configs("--alter", "--delete-config", setting)
        assert "new" not in [user.name for user in admin.users.list()]
        assert admin.quotas.describe({"user": "new"}) == []
