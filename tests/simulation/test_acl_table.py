"""What each API needs, row by row, with real ACLs on a node: allowed with exactly the needed ACLs, and denied without
any one of them."""

from __future__ import annotations

import pytest

from acl_table import BROKER_ROWS, CONTROLLER_ROWS, ERRORS, Row, codes
from penstock.broker.apis import BROKER_APIS
from penstock.broker.controller_apis import CONTROLLER_APIS
from penstock.broker.net.router import key_of
from penstock.simulator.stories.broker_world import PORT
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from simulation.acl_node import ALICE, CONTROLLER_PORT, Secured


def name_of(each: Row) -> str:
    return f"{type(each.request).__name__} v{each.version} {each.ways}"


@pytest.mark.parametrize("rows", [BROKER_ROWS, CONTROLLER_ROWS], ids=["broker", "controller"])
def test_each_row_is_allowed_with_its_acls_and_denied_without_any_of_them(rows: list[Row]) -> None:
    quietly()
    failures: list[tuple[object, ...]] = []

    async def program(loop: SimulatedLoop) -> None:
        secured = Secured(loop)
        await secured.start()
        alice = await secured.client(ALICE, CONTROLLER_PORT if rows is CONTROLLER_ROWS else PORT)
        for each in rows:
            for way in each.ways:
                for missing in way:
                    await secured.grant(*(grant for grant in way if grant != missing))
                    found = codes(await alice.ask(each.request, each.version)) & ERRORS
                    if found != {each.error[missing]}:
                        failures.append((name_of(each), "without", missing, found))
                await secured.grant(*way)
                found = codes(await alice.ask(each.request, each.version)) & ERRORS
                if found:
                    failures.append((name_of(each), "with", way, found))
        await secured.close()

    simulate(program, 1)
    assert not failures, "\n".join(map(str, failures))


def test_every_api_has_a_row_or_needs_nothing() -> None:
    covered = {each.request.__schema__.key for each in BROKER_ROWS + CONTROLLER_ROWS}
    free_or_filtered = {"API_VERSIONS", "DESCRIBE_CLUSTER", "LIST_GROUPS", "LIST_TRANSACTIONS"}
    free_or_filtered |= {"GET_TELEMETRY_SUBSCRIPTIONS", "PUSH_TELEMETRY"}
    # Each client may ask: about its own login, and for tokens that it may renew.
    free_or_filtered |= {"SASL_HANDSHAKE", "SASL_AUTHENTICATE", "RENEW_DELEGATION_TOKEN", "EXPIRE_DELEGATION_TOKEN"}
    free_or_filtered.add("DESCRIBE_DELEGATION_TOKEN")
    for api in (*BROKER_APIS, *CONTROLLER_APIS):
        assert key_of(api) in covered or key_of(api).name in free_or_filtered, key_of(api).name
