"""Authorization settings: the authorizer, its superusers, and the listeners that serve before it is ready."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from penstock.settings.definition import Value, boolean, invalid, string, strings
from penstock.settings.listeners import refusal

ACL_AUTHORIZERS: Final = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "StandardAuthorizer",
)


def _check_authorizer(name: str, value: Value) -> None:
    if value and value not in ACL_AUTHORIZERS:
        raise invalid(
            name, value, f"only {ACL_AUTHORIZERS[0]} is available here; without an authorizer everything is allowed"
        )


def parse_super_users(text: str) -> frozenset[str]:
    """`User:alice;User:bob`: separated by semicolons, because the name of a certificate contains commas."""
    users = frozenset(filter(None, (part.strip() for part in text.split(";"))))
    for user in users:
        kind, separator, _ = user.partition(":")
        if not separator or not kind:
            raise invalid("super.users", text, f"{user!r} is not a principal such as User:alice")
    return users


def _check_super_users(name: str, value: Value) -> None:
    parse_super_users(value)


@dataclass(frozen=True, kw_only=True)
class AclSettings:
    authorizer_class_name: str = string(
        "",
        "The authorizer. org.apache.kafka.metadata.authorizer.StandardAuthorizer decides by the ACLs of the cluster; "
        "the name means Penstock's own authorizer, which decides as Kafka's does. Empty: everything is allowed.",
        _check_authorizer,
    )
    super_users: str = string(
        "",
        "Principals that may do everything, whatever the ACLs say: User:alice;User:bob. The principals of the nodes "
        "themselves belong here.",
        _check_super_users,
    )
    allow_everyone_if_no_acl_found: bool = boolean(
        False,
        "Whether everyone may do everything to a resource that no ACL names.",
    )
    early_start_listeners: tuple[str, ...] = strings(
        (),
        "Listeners that serve before the ACLs are loaded; until then, only super.users get answers there. The default "
        "is the controller listeners, without which the metadata cannot be loaded. Do not name listeners for clients.",
    )

    @property
    def has_acls(self) -> bool:
        """Whether ACLs decide; otherwise everything is allowed."""
        return bool(self.authorizer_class_name)

    @cached_property
    def super_user_names(self) -> frozenset[str]:
        return parse_super_users(self.super_users)


def check_acls(
    settings: AclSettings, properties: Mapping[str, str], listeners: Collection[str], own: Mapping[str, str]
) -> None:
    """`listeners`: the names of all listeners. `own`: the principal that this node has, as a client, on each listener
    of controllers: controllers must answer each other before any ACL is loaded."""
    for name in settings.early_start_listeners:
        if name.upper() not in listeners:
            raise refusal(
                f"early.start.listeners contains listener {name.upper()}, but this is not contained in listeners or "
                "controller.listener.names"
            )
    if not settings.has_acls:
        for name in ("super.users", "allow.everyone.if.no.acl.found"):
            if properties.get(name, "").strip():
                raise refusal(
                    f"{name} is set, but there is no authorizer, so everything is allowed: set authorizer.class.name="
                    f"{ACL_AUTHORIZERS[0]}, or remove {name}"
                )
        return
    for listener, principal in own.items():
        if principal not in settings.super_user_names:
            raise refusal(locked_out(settings, listener, principal))


def locked_out(settings: AclSettings, listener: str, principal: str) -> str:
    """What to change in the settings of a cluster that would refuse the requests of its own nodes."""
    users = [*filter(None, (part.strip() for part in settings.super_users.split(";"))), principal]
    return (
        f"the nodes of the cluster connect to listener {listener} as {principal}, which may not act for the cluster: "
        f"add the line super.users={';'.join(users)} to the settings of all nodes"
    )
