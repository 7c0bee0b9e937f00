"""The authorizer against a reference that reads every ACL for every question."""

from __future__ import annotations

import ipaddress

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.security.acl_authorizer import AclAuthorizer
from penstock.security.acls import Acl, AclFilter, PatternType, Permission
from penstock.security.authorizer import Operation, Resource, ResourceKind
from penstock.security.principal import parse_principal
from property_examples import examples

NAMES = ["a", "ab", "abc", "b", "*", "aa"]
PRINCIPALS = ["User:alice", "User:bob", "User:*"]
ADDRESSES = ["10.0.0.1", "10.0.1.1", "2001:db8::1"]
HOSTS = ["*", *ADDRESSES, "10.0.0.0/24", "10.0.0.7/16", "2001:db8::/32", "nonsense/7", "host.example"]
KINDS = [ResourceKind.TOPIC, ResourceKind.GROUP]
OPERATIONS = [
    Operation.ALL,
    Operation.READ,
    Operation.WRITE,
    Operation.DESCRIBE,
    Operation.ALTER_CONFIGS,
    Operation.DESCRIBE_CONFIGS,
]
SUPER_USER = "User:root"

acls = st.builds(
    Acl,
    kind=st.sampled_from(KINDS),
    name=st.sampled_from(NAMES),
    pattern_type=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    principal=st.sampled_from(PRINCIPALS),
    host=st.sampled_from(HOSTS),
    operation=st.sampled_from(OPERATIONS),
    permission=st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
)
questions = st.tuples(
    st.sampled_from([SUPER_USER, "User:alice", "User:bob", "Group:alice"]),
    st.sampled_from([*ADDRESSES, "2001:db8:0:0::1", "::ffff:10.0.0.1", ""]),
    st.sampled_from(OPERATIONS[1:]),
    st.sampled_from(KINDS),
    st.sampled_from(["a", "abc", "abcd", "b", "c"]),
)


def host_of(text: str) -> object:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    return getattr(address, "ipv4_mapped", None) or address


def host_matches(pattern: str, host: str) -> bool:
    if pattern == "*":
        return True
    if "/" in pattern:
        try:
            return host_of(host) in ipaddress.ip_network(pattern, strict=False)
        except (ValueError, AttributeError, TypeError):
            return False
    return host_of(pattern) == host_of(host)


def operation_matches(acl: Acl, operation: Operation) -> bool:
    if acl.operation in (Operation.ALL, operation):
        return True
    if acl.permission == Permission.DENY:
        return False
    if operation is Operation.DESCRIBE:
        return acl.operation in (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
    return operation is Operation.DESCRIBE_CONFIGS and acl.operation == Operation.ALTER_CONFIGS


def expected(
    entries: set[Acl], open_by_default: bool, principal: str, host: str, operation: Operation, kind: int, name: str
) -> bool:
    if principal == SUPER_USER:
        return True
    of_resource = [
        acl
        for acl in entries
        if acl.kind == kind
        and (name.startswith(acl.name) if acl.pattern_type == PatternType.PREFIXED else acl.name in (name, "*"))
    ]
    found = {
        acl.permission
        for acl in of_resource
        if acl.principal in (principal, "User:*") and host_matches(acl.host, host) and operation_matches(acl, operation)
    }
    if Permission.DENY in found:
        return False
    return Permission.ALLOW in found or (open_by_default and not of_resource)


@settings(max_examples=examples(80))
@given(
    st.lists(st.tuples(st.booleans(), acls), max_size=12),
    st.booleans(),
    st.lists(questions, min_size=1, max_size=8),
    st.data(),
)
def test_every_decision_is_that_of_all_acls_read_in_turn(
    changes: list[tuple[bool, Acl]],
    open_by_default: bool,
    asked: list[tuple[str, str, Operation, ResourceKind, str]],
    data: st.DataObject,
) -> None:
    authorizer = AclAuthorizer(frozenset({SUPER_USER}), allow_without_acl=open_by_default)
    entries: set[Acl] = set()

    def check() -> None:
        for principal, host, operation, kind, name in asked:
            decided = authorizer.authorize(parse_principal(principal), host, operation, Resource(kind, name))
            assert decided == expected(entries, open_by_default, principal, host, operation, kind, name)

    for removes, acl in changes:
        if removes and entries:
            gone = data.draw(st.sampled_from(sorted(entries)))
            entries.remove(gone)
            authorizer.change((), [gone])
        elif acl not in entries:
            entries.add(acl)
            authorizer.change([acl], ())
        check()  # decisions made before the change must not outlive it
    check()


@settings(max_examples=examples(100))
@given(st.sets(acls, max_size=12), st.sampled_from(["User:alice", "User:bob"]), st.sampled_from(ADDRESSES))
def test_some_resource_is_allowed_as_kafka_says(entries: set[Acl], principal: str, host: str) -> None:
    """The rule of Kafka's authorizeByResourceType, which knows no implied operations beyond those of a plain name."""
    authorizer = AclAuthorizer()
    authorizer.load(entries)
    for kind in KINDS:
        for operation in (Operation.READ, Operation.WRITE):
            found = [
                acl
                for acl in entries
                if acl.kind == kind
                and acl.principal in (principal, "User:*")
                and host_matches(acl.host, host)
                and acl.operation in (operation, Operation.ALL)
            ]
            denied = [acl for acl in found if acl.permission == Permission.DENY]
            some = any(
                acl.permission == Permission.ALLOW and not any(dominates(deny, acl) for deny in denied) for acl in found
            )
            assert authorizer.authorize_any(parse_principal(principal), host, operation, kind) == some


def dominates(deny: Acl, allow: Acl) -> bool:
    if deny.pattern_type == PatternType.LITERAL:
        return deny.name == "*" or (
            allow.pattern_type == PatternType.LITERAL and allow.name != "*" and deny.name == allow.name
        )
    is_wildcard = allow.pattern_type == PatternType.LITERAL and allow.name == "*"
    return not is_wildcard and allow.name.startswith(deny.name)


filters = st.builds(
    AclFilter,
    kind=st.sampled_from([ResourceKind.ANY, *KINDS]),
    name=st.sampled_from([None, *NAMES]),
    pattern_type=st.sampled_from([PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED]),
    principal=st.sampled_from([None, *PRINCIPALS]),
    host=st.sampled_from([None, *HOSTS]),
    operation=st.sampled_from([Operation.ANY, *OPERATIONS]),
    permission=st.sampled_from([Permission.ANY, Permission.ALLOW, Permission.DENY]),
)


@given(filters, acls)
def test_a_filter_matches_field_by_field(wanted: AclFilter, acl: Acl) -> None:
    if wanted.pattern_type == PatternType.MATCH and wanted.name is not None:
        pattern = acl.covers(wanted.name)
    else:
        pattern = wanted.name in (None, acl.name) and wanted.pattern_type in (
            PatternType.ANY,
            PatternType.MATCH,
            acl.pattern_type,
        )
    rest = all(
        mine in (None, Operation.ANY, theirs) if not isinstance(mine, str) else mine == theirs
        for mine, theirs in (
            (wanted.kind, acl.kind),
            (wanted.principal, acl.principal),
            (wanted.host, acl.host),
            (wanted.operation, acl.operation),
            (wanted.permission, acl.permission),
        )
    )
    assert wanted.matches(acl) == (pattern and rest)
