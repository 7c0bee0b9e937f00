"""Decides by ACLs, as Kafka's StandardAuthorizer does.

A superuser may do everything. Otherwise all ACLs that apply count: one that denies wins over all that allow, and
without one that allows, the answer is no. Only if no ACL at all names the resource, `allow.everyone.if.no.acl.found`
decides. ACLs that allow an operation may imply another: to read, write, delete or alter includes to describe.

Finding the ACLs of a resource takes a few lookups however many ACLs there are: one by its name, one by `*`, and one for
each length that a prefix has. Decisions are kept in a table of limited size, which is emptied when ACLs change. Code on
the busiest paths keeps a decision itself, with the `version` it was made under.

Until the metadata is loaded, only superusers get an answer: a missing ACL may be one that denies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from penstock.security.acls import EVERY_NAME, EVERYBODY, Acl, PatternType, Permission
from penstock.security.authorizer import Operation, Resource, ResourceKind
from penstock.security.hosts import Address, host_matcher, parse_address
from penstock.security.principal import Principal

DECISIONS_MAX: Final = 65_536

# What an ACL that allows the operation allows as well.
_IMPLIED: Final[dict[int, Operation]] = {
    Operation.READ: Operation.DESCRIBE,
    Operation.WRITE: Operation.DESCRIBE,
    Operation.DELETE: Operation.DESCRIBE,
    Operation.ALTER: Operation.DESCRIBE,
    Operation.ALTER_CONFIGS: Operation.DESCRIBE_CONFIGS,
}


class AuthorizerNotReady(Exception):
    """The ACLs are not loaded yet; the client has to ask again."""


class Rule(NamedTuple):
    """An ACL, prepared for decisions."""

    acl: Acl
    denies: bool
    matches_host: Callable[[str, Address | None], bool]

    @classmethod
    def of(cls, acl: Acl) -> Rule:
        # A permission that this software does not know must not open anything.
        return cls(acl, acl.permission != Permission.ALLOW, host_matcher(acl.host))

    def applies(self, operation: Operation, host: str, address: Address | None) -> bool:
        named = self.acl.operation
        if named not in (Operation.ALL, operation) and (self.denies or _IMPLIED.get(named) is not operation):
            return False
        return self.matches_host(host, address)


class Decision(NamedTuple):
    allowed: bool
    reason: Acl | str
    """The ACL that decided, or a rule without one, named as in Kafka's audit log."""


class AclIndex:
    """ACLs by the resources and the principals they name."""

    def __init__(self) -> None:
        # By pattern type, kind and name, then by principal.
        self._rules: dict[tuple[int, int, str], dict[str, list[Rule]]] = {}
        # For each kind, the lengths of the names in prefixed patterns, and how many patterns have them.
        self._lengths: dict[int, dict[int, int]] = {}

    def add(self, acl: Acl) -> None:
        key = (acl.pattern_type, acl.kind, acl.name)
        principals = self._rules.get(key)
        if principals is None:
            principals = self._rules[key] = {}
            self._count_length(acl, 1)
        principals.setdefault(acl.principal, []).append(Rule.of(acl))

    def remove(self, acl: Acl) -> None:
        key = (acl.pattern_type, acl.kind, acl.name)
        principals = self._rules[key]
        left = [rule for rule in principals[acl.principal] if rule.acl != acl]
        if left:
            principals[acl.principal] = left
            return
        del principals[acl.principal]
        if not principals:
            del self._rules[key]
            self._count_length(acl, -1)

    def _count_length(self, acl: Acl, change: int) -> None:
        if acl.pattern_type != PatternType.PREFIXED:
            return
        lengths = self._lengths.setdefault(acl.kind, {})
        count = lengths.get(len(acl.name), 0) + change
        if count:
            lengths[len(acl.name)] = count
        else:
            del lengths[len(acl.name)]

    def of(self, resource: Resource) -> Iterator[dict[str, list[Rule]]]:
        """The rules that name the resource, by principal."""
        kind, name = resource
        rules = self._rules
        keys = [(PatternType.LITERAL, kind, name)]
        if name != EVERY_NAME:
            keys.append((PatternType.LITERAL, kind, EVERY_NAME))
        keys += [
            (PatternType.PREFIXED, kind, name[:length]) for length in self._lengths.get(kind, ()) if length <= len(name)
        ]
        return (rules[key] for key in keys if key in rules)

    def of_kind(self, kind: ResourceKind, principals: Iterable[str]) -> Iterator[Rule]:
        """The rules for all resources of a kind that name one of these principals."""
        for (_, each, _), by_principal in self._rules.items():
            if each == kind:
                for principal in principals:
                    yield from by_principal.get(principal, ())


class Refusal(NamedTuple):
    principal: Principal
    host: str
    operation: Operation
    resource: Resource
    api_key: int
    reason: Acl | str


def _ignore(refusal: Refusal) -> None:
    pass


class AclAuthorizer:
    def __init__(
        self,
        super_users: frozenset[str] = frozenset(),
        *,
        allow_without_acl: bool = False,
        is_loaded: Callable[[], bool] = lambda: True,
        on_refused: Callable[[Refusal], None] = _ignore,
    ) -> None:
        """`allow_without_acl`: of resources that no ACL names, everything is allowed. `is_loaded`: whether the metadata
        is loaded as far as it was committed when the node started; asked until it is."""
        self.version = 0
        self._is_loaded = is_loaded
        self._is_ready = False
        self._on_refused = on_refused
        self._super_users = super_users
        self._allow_without_acl = allow_without_acl
        self._index = AclIndex()
        self._decisions: dict[tuple[Principal, str, Operation, Resource | ResourceKind], bool] = {}

    # -- changes -----------------------------------------------------------------------------------------------------

    def change(self, added: Iterable[Acl], removed: Iterable[Acl]) -> None:
        for acl in removed:
            self._index.remove(acl)
        for acl in added:
            self._index.add(acl)
        self._forget()

    def load(self, acls: Iterable[Acl]) -> None:
        """Replace all ACLs."""
        self._index = AclIndex()
        self.change(acls, ())

    def _forget(self) -> None:
        self.version += 1
        self._decisions.clear()

    # -- decisions ---------------------------------------------------------------------------------------------------

    def authorize(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        key = (principal, host, operation, resource)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self.explain(principal, host, operation, resource).allowed
            self._keep(key, decision)
        return decision

    def authorize_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind) -> bool:
        key = (principal, host, operation, kind)
        decision = self._decisions.get(key)
        if decision is None:
            # A name that is not in use shows whether superusers, `*`, or the default allow it.
            unused = self.explain(principal, host, operation, Resource(kind, "hardcode"))
            decision = unused.allowed or self._allows_some(principal, host, operation, kind)
            self._keep(key, decision)
        return decision

    def _keep(self, key: tuple[Principal, str, Operation, Resource | ResourceKind], decision: bool) -> None:
        if len(self._decisions) >= DECISIONS_MAX:
            self._decisions.clear()
        self._decisions[key] = decision

    def explain(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> Decision:
        """The decision and its reason; AuthorizerNotReady if it cannot be made yet."""
        name = str(principal)
        if name in self._super_users:
            return Decision(True, "SuperUser")
        if not self._is_ready:
            self._is_ready = self._is_loaded()
            if not self._is_ready:
                raise AuthorizerNotReady
        address = parse_address(host)
        allowing: Acl | None = None
        is_named = False
        for by_principal in self._index.of(resource):
            is_named = True
            for each in (name, EVERYBODY):
                for rule in by_principal.get(each, ()):
                    if rule.applies(operation, host, address):
                        if rule.denies:
                            return Decision(False, rule.acl)
                        allowing = rule.acl
        if allowing is not None:
            return Decision(True, allowing)
        if self._allow_without_acl and not is_named:
            return Decision(True, "DefaultAllow")
        return Decision(False, "DefaultDeny")

    def refused(
        self, principal: Principal, host: str, operation: Operation, resource: Resource, api_key: int, /
    ) -> None:
        reason = self.explain(principal, host, operation, resource).reason
        self._on_refused(Refusal(principal, host, operation, resource, api_key, reason))

    def _allows_some(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind) -> bool:
        """Whether an ACL allows the operation on resources that no ACL denies. Nothing is implied here, as in Kafka."""
        address = parse_address(host)
        allowed: list[Acl] = []
        denied: list[Acl] = []
        for rule in self._index.of_kind(kind, {str(principal), EVERYBODY}):
            acl = rule.acl
            if acl.operation in (Operation.ALL, operation) and rule.matches_host(host, address):
                (denied if rule.denies else allowed).append(acl)
        denied_prefixes = {acl.name for acl in denied if acl.pattern_type == PatternType.PREFIXED}
        denied_names = {acl.name for acl in denied if acl.pattern_type == PatternType.LITERAL}
        if EVERY_NAME in denied_names:
            return False
        for acl in allowed:
            is_literal = acl.pattern_type == PatternType.LITERAL
            if is_literal and acl.name == EVERY_NAME:
                return True
            if is_literal and acl.name in denied_names:
                continue
            if not any(acl.name[:length] in denied_prefixes for length in range(1, len(acl.name) + 1)):
                return True
        return False
