"""Checks of credentials in threads: a few at a time, and none for clients that have gone."""

from __future__ import annotations

import asyncio
import threading

from penstock.broker.authentication.verifications import AT_A_TIME, Verdict, Verifications
from penstock.security.sasl.exchange import Challenge
from waiting import wait_until_async


def test_clients_that_have_gone_cost_no_check() -> None:
    async def story() -> None:
        verifications = Verifications(asyncio.get_running_loop())
        may_end, begun, outcomes = threading.Event(), [], []

        def check(number: int) -> None:
            def work() -> Challenge:
                begun.append(number)
                assert may_end.wait(60)
                return Challenge(b"")

            verifications.run(number, work, lambda outcome: outcomes.append(number))

        for number in range(AT_A_TIME + 1000):
            check(number)
        for number in range(AT_A_TIME + 1000):
            verifications.forget(number)
        check(2000)
        may_end.set()
        await wait_until_async(lambda: _is(2000 in outcomes), "the one that stayed is checked")
        assert sorted(begun) == [*range(AT_A_TIME), 2000]

    asyncio.run(story())


def test_an_answer_that_fails_keeps_no_other_client_waiting() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        failures: list[object] = []
        loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
        verifications = Verifications(loop)
        outcomes: list[Verdict] = []

        def fail(_: Verdict) -> None:
            raise ZeroDivisionError

        for number in range(2 * AT_A_TIME):
            verifications.run(number, lambda: Challenge(b""), fail)
        verifications.run("last", lambda: Challenge(b"last"), outcomes.append)
        await wait_until_async(lambda: _is(bool(outcomes)), "the last one is answered")
        assert outcomes == [Challenge(b"last")]
        assert len(failures) == 2 * AT_A_TIME

    asyncio.run(story())


async def _is(value: bool) -> bool:
    return value
