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

            verifications.run("host", number, work, lambda outcome: outcomes.append(number))

        for number in range(AT_A_TIME + 1000):
            check(number)
        for number in range(AT_A_TIME + 1000):
            verifications.forget("host", number)
        check(2000)
        may_end.set()
        await wait_until_async(lambda: _is(2000 in outcomes), "the one that stayed is checked")
        assert sorted(begun) == [*range(AT_A_TIME), 2000]

    asyncio.run(story())


def test_hosts_take_turns() -> None:
    async def story() -> None:
        verifications = Verifications(asyncio.get_running_loop())
        may_end, ended = threading.Event(), []

        def check(host: str, number: int) -> None:
            def work() -> Challenge:
                assert may_end.wait(60)
                return Challenge(b"")

            verifications.run(host, (host, number), work, lambda _: ended.append((host, number)))

        for number in range(100):
            check("guesser", number)
        for number in range(3):
            check("other", number)
        may_end.set()
        await wait_until_async(lambda: _is(len(ended) == 103), "all are checked")
        of_other = [ended.index(("other", number)) for number in range(3)]
        assert max(of_other) < 3 * AT_A_TIME + 6
        assert sorted(ended) == [("guesser", number) for number in range(100)] + [("other", n) for n in range(3)]

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
            verifications.run("host", number, lambda: Challenge(b""), fail)
        verifications.run("host", "last", lambda: Challenge(b"last"), outcomes.append)
        await wait_until_async(lambda: _is(bool(outcomes)), "the last one is answered")
        assert outcomes == [Challenge(b"last")]
        assert len(failures) == 2 * AT_A_TIME

    asyncio.run(story())


async def _is(value: bool) -> bool:
    return value
