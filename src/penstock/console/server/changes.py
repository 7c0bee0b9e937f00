"""Changes: what forms do. Each has a name, is refused in read-only mode, and leaves an audit line.

A change runs with the clients of the user who asked for it, so the cluster decides whether it may happen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.client.wire.admin import Acl, AclFilter, ResourceType
from penstock.client.wire.admin.share_groups import SHARE
from penstock.console.markup import address
from penstock.console.observe.access import ClusterAccess
from penstock.console.observe.pipelines import redrive
from penstock.console.server.cluster_pages import reset
from penstock.console.views.groups import parse_reset
from penstock.console.views.letters import BadLetter, edited_value, parse_place
from penstock.console.views.topics import name_problem, setting_problem
from penstock.model.ids import TopicPartition
from penstock.pipelines.operate.dead_letters import Selection

Form = Mapping[str, str]


class Refused(Exception):
    """What was asked for makes no sense; the message says why."""


@dataclass(frozen=True, slots=True)
class Change:
    """`run` blocks, and returns what to say when it is done."""

    run: Callable[[ClusterAccess, Form], str]
    subject: str = "name"
    """The field that names what is changed."""
    then: Callable[[Form], str] | None = None
    """The address to go to when it is done; else the page with the form."""
    draft: str = ""
    """The field whose text is kept for the page with the form, if the change is refused."""


def _number(form: Form, name: str) -> int | None:
    text = form.get(name, "").strip()
    if not text:
        return None
    if not text.isdecimal() or len(text) > 9:
        raise Refused(f"{name} {text!r} is not a number")
    return int(text)


def _pairs(text: str, what: str) -> dict[str, str]:
    pairs = {}
    for line in filter(None, (line.strip() for line in text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise Refused(f"{what}: {line!r} is not NAME=VALUE")
        pairs[name.strip()] = value.strip()
    return pairs


def _confirmed(form: Form) -> str:
    if form.get("confirm", "").strip() != form.get("name"):
        raise Refused("nothing was done: the typed name is not that of what would be changed")
    return form["name"]


def create_topic(access: ClusterAccess, form: Form) -> str:
    name = form.get("name", "").strip()
    problem = name_problem(name)
    if problem is not None:
        raise Refused(problem)
    configs = _pairs(form.get("configs", ""), "settings")
    with access.admin() as admin:
        admin.topics.create(
            name,
            partitions=_number(form, "partitions"),
            replication_factor=_number(form, "replication"),
            configs=configs,
        )
    return f"Topic {name} is created."


def grow_topic(access: ClusterAccess, form: Form) -> str:
    total = _number(form, "partitions")
    if total is None:
        raise Refused("say how many partitions the topic shall have")
    with access.admin() as admin:
        admin.topics.add_partitions(form["name"], total)
    return f"Topic {form['name']} has {total} partitions."


def delete_topic(access: ClusterAccess, form: Form) -> str:
    name = _confirmed(form)
    with access.admin() as admin:
        admin.topics.delete(name)
    return f"Topic {name} is deleted."


def empty_topic(access: ClusterAccess, form: Form) -> str:
    name = _confirmed(form)
    with access.admin() as admin:
        (topic,) = admin.topics.describe([name])
        admin.topics.delete_records({TopicPartition(name, each.partition): -1 for each in topic.partitions})
    return f"All records of {name} so far are deleted."


def set_topic(access: ClusterAccess, form: Form) -> str:
    name, setting, value = form["name"], form["setting"], form.get("value", "")
    with access.admin() as admin:
        if form.get("do") == "delete":
            admin.configs.alter(ResourceType.TOPIC, name, delete=[setting])
            return f"{setting} of {name} has its default again."
        problem = setting_problem(setting, value)
        if problem is not None:
            raise Refused(problem)
        admin.configs.alter(ResourceType.TOPIC, name, {setting: value})
    return f"{setting} of {name} is {value}."


def produce_record(access: ClusterAccess, form: Form) -> str:
    import pyarrow as pa

    from penstock.arrow import HEADERS_TYPE, write_table

    headers = _pairs(form.get("headers", ""), "headers")
    partition = _number(form, "partition")
    key = form.get("key", "")
    value = None if form.get("null") else form.get("value", "").replace("\r\n", "\n").encode(errors="replace")
    columns: dict[str, Any] = {
        "key": pa.array([key.encode(errors="replace") if key else None], pa.binary()),
        "value": pa.array([value], pa.binary()),
        "headers": pa.array(
            [[{"key": name, "value": text.encode(errors="replace")} for name, text in headers.items()]], HEADERS_TYPE
        ),
    }
    if partition is not None:
        columns["partition"] = pa.array([partition], pa.int32())
    write_table(
        access.bootstrap,
        form["name"],
        pa.table(columns),
        key="key",
        value="value",
        headers="headers",
        partition="partition" if partition is not None else None,
        timeout=15.0,
        options=access.options or None,
    )
    return "The record is written."


def reset_group(access: ClusterAccess, form: Form) -> str:
    try:
        target = parse_reset(form)
    except ValueError as error:
        raise Refused(str(error)) from error
    is_share = form.get("type") == SHARE
    done = reset(access, form["name"], target, form.get("topic", ""), is_share=is_share, dry_run=False)
    return f"{len(done)} offsets of group {form['name']} are reset."


def delete_group(access: ClusterAccess, form: Form) -> str:
    name = _confirmed(form)
    with access.admin() as admin:
        admin.groups.delete([name])
    return f"Group {name} is deleted."


def redrive_letters(access: ClusterAccess, form: Form) -> str:
    places = frozenset({_place(form)} if form.get("place") else ())
    selection = Selection(reason=form.get("reason", ""), pipeline=form.get("pipeline", ""), places=places)
    result = redrive(access, form["name"], selection)
    sent = sum(result.chosen.values())
    homeless = f" {result.homeless} were not records of a topic, and stay." if result.homeless else ""
    return f"{sent} letters of {form['name']} are redriven; {result.before} were before.{homeless}"


def redrive_edited(access: ClusterAccess, form: Form) -> str:
    """The letter itself stays as it is; it counts as redriven once the edited record and that it was are committed."""
    place = _place(form)
    try:
        value = edited_value(form["value"], must_be_json=not form.get("text"))
    except BadLetter as error:
        raise Refused(str(error)) from error
    result = redrive(access, form["name"], Selection(places=frozenset({place})), {place: value})
    if not sum(result.chosen.values()):
        raise Refused(
            "it is not a record of a topic, and nothing was sent"
            if result.homeless
            else "this letter was redriven before, or is gone: nothing was sent"
        )
    return f"Letter {form['place']} of {form['name']} is redriven, edited."


def _place(form: Form) -> tuple[int, int]:
    try:
        return parse_place(form["place"])
    except BadLetter as error:
        raise Refused(str(error)) from error


def stop_pipeline(access: ClusterAccess, form: Form) -> str:
    if access.options:
        raise Refused(f"use the command line for clusters with passwords: penstock pipeline stop {form['name']}")
    from penstock.pipelines.operate.remote import report_of, request_stop

    report = request_stop(access.bootstrap, report_of(access.bootstrap, form["name"]), now=False, timeout=1.0)
    return f"Pipeline {form['name']} was asked to stop; it is {report.state}."


def set_user(access: ClusterAccess, form: Form) -> str:
    if not form.get("password"):
        raise Refused("give a password")
    with access.admin() as admin:
        admin.users.set_password(form["name"], form["password"], mechanism=form.get("mechanism", "SCRAM-SHA-512"))
    return f"The password of {form['name']} is set."


def remove_user(access: ClusterAccess, form: Form) -> str:
    with access.admin() as admin:
        admin.users.remove(form["name"], mechanism=form["mechanism"])
    return f"{form['mechanism']} of {form['name']} is removed."


_ACL_FIELDS = ("principal", "operation", "resource_type", "resource", "pattern", "host", "permission")


def create_acl(access: ClusterAccess, form: Form) -> str:
    given = {name: form[name] for name in _ACL_FIELDS if form.get(name)}
    if "resource" not in given and given.get("resource_type") != "CLUSTER":
        raise Refused("name the resource, or * for all of its kind")
    with access.admin() as admin:
        admin.acls.create([Acl(**given)])
    return f"{form['principal']} has a new ACL."


def delete_acl(access: ClusterAccess, form: Form) -> str:
    with access.admin() as admin:
        deleted = admin.acls.delete([AclFilter(**{name: form[name] for name in _ACL_FIELDS})])
    return f"{len(deleted)} ACL of {form['principal']} is deleted."


def set_quota(access: ClusterAccess, form: Form) -> str:
    """Without a value, the quota is removed. An empty name is the default entity."""
    entity = {kind: (form.get(kind) or form.get("entity") or None) for kind in form.get("kinds", "").split(",") if kind}
    quota, text = form["quota"], form.get("value", "").strip()
    try:
        values = {quota: float(text)} if text else {}
    except ValueError:
        raise Refused(f"{text!r} is not a number") from None
    with access.admin() as admin:
        admin.quotas.alter(entity, values, remove=[] if text else [quota])
    return f"{quota} is {'set' if text else 'removed'}."


def abort_transaction(access: ClusterAccess, form: Form) -> str:
    partition = TopicPartition(form["name"], int(form["partition"]))
    with access.admin() as admin:
        admin.transactions.abort(partition, producer_id=int(form["producer"]))
    return f"The transaction in {partition} is aborted."


CHANGES: dict[str, Change] = {
    "topic.create": Change(create_topic, then=lambda form: address("/topics/", form["name"].strip())),
    "topic.grow": Change(grow_topic),
    "topic.delete": Change(delete_topic, then=lambda form: "/topics"),
    "topic.empty": Change(empty_topic),
    "topic.set": Change(set_topic),
    "record.produce": Change(produce_record),
    "group.reset": Change(reset_group),
    "group.delete": Change(delete_group),
    "letters.redrive": Change(redrive_letters),
    "letters.edit": Change(
        redrive_edited, then=lambda form: address("/dead-letters", topic=form["name"]), draft="value"
    ),
    "pipeline.stop": Change(stop_pipeline),
    "user.set": Change(set_user),
    "user.remove": Change(remove_user),
    "acl.create": Change(create_acl, "principal"),
    "acl.delete": Change(delete_acl, "principal"),
    "quota.set": Change(set_quota, "quota"),
    "transaction.abort": Change(abort_transaction),
}
