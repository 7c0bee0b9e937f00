from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from penstock.broker.net import audit
from penstock.broker.net.audit import KINDS_MAX, SECONDS_EACH, Audit
from penstock.broker.node_log import JsonFormatter
from penstock.protocol.apis import ApiKey
from penstock.security.acl_authorizer import Refusal
from penstock.security.acls import Acl
from penstock.security.authorizer import Operation, topic_resource
from penstock.security.principal import Principal

EVE = Principal("User", "eve")
DENY = Acl(2, "orders", 3, "User:eve", "*", 2, 2)


def refusal(name: str = "orders", reason: Acl | str = "DefaultDeny") -> Refusal:
    return Refusal(EVE, "10.0.0.1", Operation.READ, topic_resource(name), ApiKey.FETCH, reason)


class Lines(logging.Handler):
    """What the audit log says, and nothing of what other loggers say meanwhile, such as asyncio's of earlier tests."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Lines]:
    caplog.set_level(logging.INFO, "penstock.audit")
    handler = Lines()
    audit.logger.addHandler(handler)
    yield handler
    audit.logger.removeHandler(handler)


def test_a_refusal_is_told_in_kafkas_words_and_as_an_object(lines: Lines) -> None:
    Audit(lambda: 0.0).refused(refusal(reason=DENY))
    (record,) = lines.records
    assert record.getMessage() == (
        "Principal = User:eve is Denied operation = READ from host = 10.0.0.1 on resource = TOPIC:LITERAL:orders "
        "for request = Fetch based on rule MatchingAcl(acl=User:eve has DENY permission for operations: ALL "
        "from hosts: * on TOPIC LITERAL orders)"
    )
    fields = json.loads(JsonFormatter(7).format(record))["audit"]
    assert fields["event"] == "refused"
    assert (fields["principal"], fields["resource"], fields["request"]) == ("User:eve", "orders", "Fetch")


def test_equal_refusals_are_told_once_a_period(lines: Lines) -> None:
    now = 0.0
    told = Audit(lambda: now)
    for _ in range(5):
        told.refused(refusal())
    told.refused(refusal("other"))
    assert len(lines.records) == 2
    now += SECONDS_EACH
    told.refused(refusal())
    assert "(4 such lines were left out)" in lines.records[-1].getMessage()


def test_a_client_that_tries_every_name_does_not_fill_the_memory(lines: Lines) -> None:
    told = Audit(lambda: 0.0)
    for number in range(KINDS_MAX + 5):
        told.refused(refusal(f"t{number}"))
    assert len(lines.records) == KINDS_MAX + 5
    told.refused(refusal("t0"))  # forgotten meanwhile, so it is logged again
    assert len(lines.records) == KINDS_MAX + 6


def test_a_name_cannot_write_a_line_of_its_own(lines: Lines) -> None:
    Audit(lambda: 0.0).refused(refusal("a\nPrincipal = User:admin is Allowed"))
    audit.changed(EVE, "10.0.0.1", ApiKey.CREATE_TOPICS, ["t\r\nx", *(f"t{number}" for number in range(50))])
    refused, changed = (record.getMessage() for record in lines.records)
    assert "\n" not in refused + changed
    assert "a\\nPrincipal" in refused
    assert changed.startswith("Principal = User:eve from host = 10.0.0.1 changed the cluster by request = CreateTopics")
    assert changed.endswith("and 31 more")
