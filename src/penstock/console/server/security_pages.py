"""The pages about who may do what, and about schemas."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote

from penstock.client.errors import ClientError
from penstock.client.wire.admin import Admin
from penstock.console.markup import Markup, tag
from penstock.console.observe.access import ClusterAccess
from penstock.console.observe.registry import SchemaRegistry
from penstock.console.pages import security as page
from penstock.console.pages.layout import Page, Part, empty
from penstock.console.server.visit import NotFound, Visit
from penstock.model.errors import KafkaError

Found = TypeVar("Found")

_TITLES = {"users": "Users", "acls": "ACLs", "quotas": "Quotas"}


async def security(visit: Visit) -> Page:
    """Each part by itself: a user may be allowed to see one and not another."""

    async def part(identity: str, question: Callable[[Admin], Found], shown: Callable[[Found], Markup]) -> Part:
        def ask(access: ClusterAccess) -> Found:
            with access.admin() as admin:
                return question(admin)

        try:
            return Part(identity, shown(await visit.workspace.ask(ask)))
        except (ClientError, KafkaError) as error:
            return Part(identity, tag("section", tag("h2", _TITLES[identity]), empty(str(error))))

    parts = [
        await part("users", lambda admin: admin.users.list(), lambda found: page.users(found, visit.frame)),
        await part("acls", lambda admin: admin.acls.describe(), lambda found: page.acls(found, visit.frame)),
        await part("quotas", lambda admin: admin.quotas.describe(), lambda found: page.quotas(found, visit.frame)),
    ]
    return Page("Security", "security", parts)


async def schemas(visit: Visit) -> Page:
    if visit.settings.registry is None:
        raise NotFound("This console knows no schema registry: start it with --registry URL.")
    registry = SchemaRegistry(visit.settings.registry)
    subject = visit.parameters.get("subject", "")
    try:
        if not subject:
            names = await asyncio.to_thread(registry.get, "/subjects")
            return Page("Schemas", "schemas", [Part("subjects", page.subjects(sorted(map(str, names))))])
        found = await asyncio.to_thread(_versions, registry, subject)
    except (OSError, ValueError) as error:
        raise ClientError(f"the registry {visit.settings.registry} does not answer: {error}") from error
    return Page(subject, "schemas", [Part("versions", page.versions(subject, found))], [("Schemas", "/schemas")])


def _versions(registry: SchemaRegistry, subject: str) -> list[dict[str, Any]]:
    """The newest first."""
    path = f"/subjects/{quote(subject, safe='')}/versions"
    return [registry.get(f"{path}/{number}") for number in sorted(registry.get(path), reverse=True)[:50]]
