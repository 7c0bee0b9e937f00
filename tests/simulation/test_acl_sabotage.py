"""The laws of the story about ACLs catch a cluster that is broken on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from penstock.broker.apis.produce_plain import PlainProduce, Target
from penstock.broker.controller_apis import envelope
from penstock.protocol.messages.principal import DefaultPrincipalData
from penstock.security.acl_authorizer import AclAuthorizer
from penstock.security.acls import Acl
from penstock.security.principal import ANONYMOUS
from penstock.simulator.stories.acl_story import play
from penstock.simulator.story import quietly
from simulation.sabotage import assert_caught

Patch = pytest.MonkeyPatch
SEEDS = range(20)


def decisions_outlive_their_acls(patch: Patch) -> None:
    def forget(self: AclAuthorizer) -> None:
        self.version += 1

    patch.setattr(AclAuthorizer, "_forget", forget)


def connections_outlive_their_acls(patch: Patch) -> None:
    """A connection that was allowed to write once goes on."""

    def may_append(self: PlainProduce, target: Target) -> bool:
        return target.replica.appends_plainly

    patch.setattr(PlainProduce, "may_append", may_append)


def a_broker_forwards_in_its_own_name(patch: Patch) -> None:
    def principal(data: bytes | None) -> DefaultPrincipalData:
        return DefaultPrincipalData(type=ANONYMOUS.type, name=ANONYMOUS.name)

    patch.setattr(envelope, "_principal", principal)


def nodes_start_without_their_acls(patch: Patch) -> None:
    def load(self: AclAuthorizer, acls: Iterable[Acl]) -> None:
        """Those of the snapshot are forgotten."""

    def change(self: AclAuthorizer, added: Iterable[Acl], removed: Iterable[Acl]) -> None:
        self._index.__init__()  # type: ignore[misc]  # only the last change is known
        for acl in added:
            self._index.add(acl)
        self._forget()

    patch.setattr(AclAuthorizer, "load", load)
    patch.setattr(AclAuthorizer, "change", change)


@pytest.mark.parametrize(
    ("sabotage", "law"),
    [
        (decisions_outlive_their_acls, "DeniedIsRefused AllowedIsServed"),
        (connections_outlive_their_acls, "DeniedIsRefused"),
        (a_broker_forwards_in_its_own_name, "DeniedIsRefused"),
        (nodes_start_without_their_acls, "DeniedIsRefused AllowedIsServed"),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_a_law_catches(sabotage: Callable[[Patch], None], law: str, monkeypatch: Patch) -> None:
    quietly()
    sabotage(monkeypatch)
    assert_caught(law, SEEDS, lambda seed: play(seed).violation)
