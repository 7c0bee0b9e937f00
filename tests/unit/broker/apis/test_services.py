"""The services of API handlers stay narrow: a handler that needs more parts of the node is several handlers."""

from __future__ import annotations

import dataclasses

from penstock.broker.apis import services
from penstock.broker.controller_apis import services as controller_services

MEMBERS_MAX = 8


def test_no_family_of_apis_gets_more_than_eight_parts_of_the_node() -> None:
    families = [
        each
        for module in (services, controller_services)
        for each in vars(module).values()
        if isinstance(each, type) and dataclasses.is_dataclass(each) and each.__module__ == module.__name__
    ]
    assert len(families) > 5
    members = {each.__name__: len(dataclasses.fields(each)) for each in families}
    assert all(count <= MEMBERS_MAX for count in members.values()), members
