"""Users, ACLs, quotas; transactions; schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.client.wire.admin.acls import Acl
from penstock.client.wire.admin.quotas import EntityQuotas, entity_text
from penstock.client.wire.admin.transactions import OpenTransaction, TransactionDescription
from penstock.client.wire.admin.users import ScramUserDescription
from penstock.console import units
from penstock.console.markup import NOTHING, Child, Markup, address, joined, tag
from penstock.console.pages.layout import Column, Frame, empty, form, hidden, labelled, select, table, time
from penstock.console.views.text import visible

BACK = "/security"
OPERATIONS = ("READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "ALL", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
RESOURCES = ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")
QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")


def users(found: Sequence[ScramUserDescription], frame: Frame) -> Markup:
    rows: list[list[Child]] = [
        [
            user.name,
            ", ".join(f"{name} ({iterations:,} iterations)" for name, iterations in user.mechanisms.items()),
            joined(
                [
                    _act(frame, "/do/user.remove", f"Remove {mechanism}", {"name": user.name, "mechanism": mechanism})
                    for mechanism in user.mechanisms
                ]
            ),
        ]
        for user in found
    ]
    listed = (
        table([Column("User"), Column("Mechanisms"), Column("")], rows, caption="Users")
        if rows
        else empty("There are no SCRAM users.", "Create one below. Users of certificates or tokens are not listed.")
    )
    return joined(tag("h2", "Users"), listed, _user_form(frame))


def _act(frame: Frame, action: str, text: str, fields: Mapping[str, str], back: str = BACK) -> Markup:
    """A button that sends these fields; nothing if the console only shows."""
    if frame.read_only:
        return NOTHING
    inputs = [hidden(name, value) for name, value in {**fields, "back": back}.items()]
    return form(action, frame.csrf, inputs, tag("button", text, class_="danger"), class_="inline")


def _user_form(frame: Frame) -> Markup:
    if frame.read_only:
        return NOTHING
    return tag(
        "details",
        tag("summary", "Create a user, or set a password"),
        form(
            "/do/user.set",
            frame.csrf,
            hidden("back", BACK),
            labelled("Name", tag("input", name="name", required=True, autocomplete="off")),
            labelled(
                "Password",
                tag("input", name="password", type="password", required=True, autocomplete="new-password"),
                "It does not leave the console: the cluster gets a salted hash.",
            ),
            labelled("Mechanism", select("mechanism", ("SCRAM-SHA-512", "SCRAM-SHA-256"), "SCRAM-SHA-512")),
            tag("button", "Set", class_="primary"),
            class_="stack",
        ),
        class_="box",
    )


def acls(found: Sequence[Acl], frame: Frame) -> Markup:
    columns = [
        Column("Principal"),
        Column("May"),
        Column("Operation"),
        Column("Resource"),
        Column("Pattern", minor=True),
        Column("From", minor=True),
        Column(""),
    ]
    rows: list[list[Child]] = [
        [
            acl.principal,
            tag("span", acl.permission.lower(), class_="good" if acl.permission == "ALLOW" else "bad"),
            acl.operation.lower(),
            f"{acl.resource_type.lower()} {acl.resource}",
            acl.pattern.lower(),
            "anywhere" if acl.host == "*" else acl.host,
            _act(
                frame,
                "/do/acl.delete",
                "Delete",
                {
                    name: getattr(acl, name)
                    for name in ("principal", "operation", "resource_type", "resource", "pattern", "host", "permission")
                },
            ),
        ]
        for acl in found
    ]
    listed = table(columns, rows, caption="ACLs") if rows else empty("There are no ACLs.", "Add one below.")
    return joined(tag("h2", "ACLs"), listed, _acl_form(frame))


def _acl_form(frame: Frame) -> Markup:
    if frame.read_only:
        return NOTHING
    return tag(
        "details",
        tag("summary", "Add an ACL"),
        form(
            "/do/acl.create",
            frame.csrf,
            hidden("back", BACK),
            labelled(
                "Principal", tag("input", name="principal", required=True, placeholder="User:alice", autocomplete="off")
            ),
            labelled("Permission", select("permission", ("ALLOW", "DENY"), "ALLOW")),
            labelled("Operation", select("operation", OPERATIONS, "READ")),
            labelled("Resource", select("resource_type", RESOURCES, "TOPIC")),
            labelled("Name", tag("input", name="resource", placeholder="orders, or * for all", autocomplete="off")),
            labelled("Pattern", select("pattern", ("LITERAL", "PREFIXED"), "LITERAL")),
            labelled("Host", tag("input", name="host", value="*", autocomplete="off")),
            tag("button", "Add", class_="primary"),
            class_="stack",
        ),
        class_="box",
    )


def quotas(found: Sequence[EntityQuotas], frame: Frame) -> Markup:
    rows: list[list[Child]] = [
        [
            entity_text(each.entity),
            ", ".join(
                f"{name} {units.size_rate(value) if 'byte' in name else units.short(value)}"
                for name, value in each.values.items()
            ),
            joined(
                [
                    _act(
                        frame,
                        "/do/quota.set",
                        f"Remove {quota}",
                        {
                            **{kind: name or "" for kind, name in each.entity.items()},
                            "kinds": ",".join(each.entity),
                            "quota": quota,
                            "value": "",
                        },
                    )
                    for quota in each.values
                ]
            ),
        ]
        for each in found
    ]
    listed = (
        table([Column("Of"), Column("Quotas"), Column("")], rows, caption="Quotas")
        if rows
        else empty("There are no quotas.")
    )
    return joined(tag("h2", "Quotas"), listed, _quota_form(frame))


def _quota_form(frame: Frame) -> Markup:
    if frame.read_only:
        return NOTHING
    return tag(
        "details",
        tag("summary", "Set a quota"),
        form(
            "/do/quota.set",
            frame.csrf,
            hidden("back", BACK),
            labelled("Of", select("kinds", {"user": "user", "client-id": "client id", "ip": "address"}, "user")),
            labelled(
                "Name",
                tag("input", name="entity", autocomplete="off"),
                "Empty: the default of all that have none of their own.",
            ),
            labelled("Quota", select("quota", (*QUOTAS, "connection_creation_rate"), QUOTAS[0])),
            labelled("Value", tag("input", name="value", type="number", min=0, step="any", required=True)),
            tag("button", "Set", class_="primary"),
            class_="stack",
        ),
        class_="box",
    )


def transactions(found: Sequence[TransactionDescription], now_ms: int) -> Markup:
    if not found:
        return empty("There are no transactional producers.")
    columns = [
        Column("Transactional id"),
        Column("State"),
        Column("Open since"),
        Column("For", number=True),
        Column("Timeout", number=True, minor=True),
        Column("Producer", number=True, minor=True),
        Column("Partitions", minor=True),
    ]
    rows: list[list[Child]] = [
        [
            each.transactional_id,
            tag("span", each.state, class_="warn" if each.state == "Ongoing" else "quiet"),
            time(each.start_ms),
            units.duration(None if each.start_ms is None else (now_ms - each.start_ms) / 1000),
            units.duration(each.timeout_ms / 1000),
            f"{each.producer_id}, epoch {each.producer_epoch}",
            ", ".join(map(str, each.partitions[:10])) or units.UNKNOWN,
        ]
        for each in found
    ]
    return table(columns, rows, caption="Transactions")


def hanging(found: Sequence[OpenTransaction], frame: Frame) -> Markup:
    if not found:
        return empty(
            "No transaction hangs.",
            "A hanging transaction is one that no coordinator will end: readers of committed records wait for it.",
        )
    columns = [
        Column("Partition"),
        Column("Producer"),
        Column("Begins at", number=True),
        Column("Last write"),
        Column(""),
    ]
    rows: list[list[Child]] = [
        [
            str(each.where),
            each.transactional_id or each.producer.producer_id,
            units.count(each.producer.transaction_start),
            time(each.producer.last_timestamp),
            _act(
                frame,
                "/do/transaction.abort",
                "Abort",
                {
                    "name": each.topic,
                    "partition": str(each.partition),
                    "producer": str(each.producer.producer_id),
                },
                back="/transactions",
            ),
        ]
        for each in found
    ]
    return table(columns, rows, caption="Hanging transactions")


def subjects(names: Sequence[str]) -> Markup:
    if not names:
        return empty("The registry has no subjects.")
    return table(
        [Column("Subject")],
        [[tag("a", name, href=address("/schemas", subject=name))] for name in names],
        caption="Subjects",
    )


def versions(subject: str, found: Sequence[Mapping[str, object]]) -> Markup:
    parts: list[Child] = []
    for each in found:
        title = f"Version {each.get('version')}, id {each.get('id')}, {each.get('schemaType') or 'AVRO'}"
        parts.append(
            tag(
                "details",
                tag("summary", title),
                tag("pre", visible(str(each.get("schema", "")))[:200_000], tabindex=0),
                open=each is found[0],
                class_="finding",
            )
        )
    return joined(parts)
