"""Quotas against naive references that remember everything; the clock may stand still, leap, or go backwards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.quotas import accounts
from penstock.quotas.accounts import MutationQuota, RateQuota
from penstock.quotas.client_quotas import ClientQuotas
from penstock.quotas.entity import CLIENT_ID, USER, Entity, entity_of
from penstock.quotas.levels import Levels, Limit
from penstock.quotas.rate import INT_MAX, Rate, Window
from penstock.quotas.token_bucket import TokenBucket
from property_examples import examples

windows = st.builds(Window, st.integers(1, 12), st.sampled_from([100, 1000, 2000]))
steps = st.one_of(
    st.integers(0, 300), st.integers(300, 2500), st.integers(9_000, 13_000), st.integers(-20_000, -1), st.just(0)
)
events = st.lists(st.tuples(steps, st.integers(0, 5000)), min_size=1, max_size=60)


def times_of(moves: Sequence[tuple[int, int]]) -> list[int]:
    """What the clock shows at each event."""
    return list(accumulate((step for step, _ in moves), initial=1_000_000))[1:]


def naive_rate(history: list[tuple[int, int]], now: int, window: Window) -> tuple[float, int]:
    """The rate and the time it is measured over, from all events so far."""
    samples: list[list[tuple[int, int]]] = []
    for time, value in history:
        if not samples or time - samples[-1][0][0] >= window.size_ms:
            samples.append([])
        samples[-1].append((time, value))
    live = [sample for sample in samples if now - sample[-1][0] < window.samples * window.size_ms]
    elapsed = now - live[0][0][0] if live else 0
    while elapsed // window.size_ms < window.samples - 1:
        elapsed += window.size_ms
    elapsed = max(elapsed, 1)
    return sum(value for sample in live for _, value in sample) / (elapsed / 1000), elapsed


@settings(max_examples=examples(100))
@given(windows, events, st.integers(1, 3000))
def test_a_rate_is_that_of_all_events_within_the_window(
    window: Window, moves: list[tuple[int, int]], limit: int
) -> None:
    rate = Rate(window)
    history: list[tuple[int, int]] = []
    latest = 0
    for now, (_, value) in zip(times_of(moves), moves, strict=True):
        latest = max(latest, now)  # a clock that goes backwards stands still
        history.append((latest, value))
        rate.record(value, now)
        expected, measured_over = naive_rate(history, latest, window)
        assert math.isclose(rate.per_second(now), expected, rel_tol=1e-9)
        assert rate.window_ms(now) == measured_over
        throttle_ms = rate.throttle_ms(limit, now)
        over_ms = max(0.0, (expected - limit) / limit * measured_over)
        assert abs(throttle_ms - over_ms) <= 0.5 + 1e-9 * over_ms  # of x.5 ms, either neighbour will do


@settings(max_examples=examples(100))
@given(windows, events, st.integers(1, 3000))
def test_a_client_that_waits_as_told_keeps_to_its_quota(
    window: Window, moves: list[tuple[int, int]], limit: int
) -> None:
    rate = Rate(window)
    now, total = 1_000_000, 0
    for step, value in moves:
        now += max(0, step)
        rate.record(value, now)
        total += value
        now += rate.throttle_ms(limit, now)
    # What comes within the first window is free, and the last request may be of any size.
    allowed = limit * (now - 1_000_000 + window.full_ms + window.size_ms) / 1000 + 5000
    assert total <= allowed * 1.01


@settings(max_examples=examples(100))
@given(windows, events, st.integers(1, 100))
def test_a_token_bucket_is_that_of_all_events(window: Window, moves: list[tuple[int, int]], limit: int) -> None:
    bucket = TokenBucket(window)
    burst = window.samples * window.size_ms / 1000 * limit
    tokens, latest = burst, 0
    for now, (_, permits) in zip(times_of(moves), moves, strict=True):
        if latest:
            tokens = min(burst, tokens + limit * max(0, now - latest) / 1000)
        latest = max(latest, now)
        assert math.isclose(bucket.tokens(limit, now), tokens, rel_tol=1e-9, abs_tol=1e-6)
        bucket.take(permits, limit, now)
        tokens -= permits
        throttle_ms = bucket.throttle_ms(limit, now)
        assert throttle_ms >= 0
        if throttle_ms:  # a client that waits for the throttle time may continue
            assert bucket.tokens(limit, latest) + limit * (throttle_ms + 1) / 1000 >= -1e-6


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.integers(0, 4000), st.integers(1, 50)), min_size=1, max_size=40), st.integers(1, 10))
def test_strict_refuses_and_permissive_counts(moves: list[tuple[int, int]], value: int) -> None:
    window, limit = Window(), Limit("alice", None, float(value))
    strict, permissive = MutationQuota(window), MutationQuota(window)
    now, counted, burst = 1_000_000, 0, value * 11
    for step, permits in moves:
        now += step
        if not strict.take(limit, permits, now, is_strict=True):
            counted += permits
        permissive.take(limit, permits, now, is_strict=False)
        # Overdrawn by one request at most.
        assert strict.account(limit, now).value(now) > -51
    assert counted <= burst + value * (now - 1_000_000) / 1000 + 50
    asked = sum(permits for _, permits in moves)
    assert permissive.account(limit, now).value(now) <= burst - asked + value * (now - 1_000_000) / 1000 + 1e-6


names = st.sampled_from(["alice", "bob", "", "carol"])
some_names = st.one_of(st.none(), names)
client_entities = st.one_of(
    st.builds(lambda user: entity_of([(USER, user)]), some_names),
    st.builds(lambda client: entity_of([(CLIENT_ID, client)]), some_names),
    st.builds(lambda user, client: entity_of([(USER, user), (CLIENT_ID, client)]), some_names, some_names),
)


def naive_limit(values: dict[Entity, float], user: str, client: str) -> Limit | None:
    precedence: list[tuple[dict[str, str | None], tuple[str | None, str | None]]] = [
        ({USER: user, CLIENT_ID: client}, (user, client)),
        ({USER: user, CLIENT_ID: None}, (user, client)),
        ({USER: user}, (user, None)),
        ({USER: None, CLIENT_ID: client}, (user, client)),
        ({USER: None, CLIENT_ID: None}, (user, client)),
        ({USER: None}, (user, None)),
        ({CLIENT_ID: client}, (None, client)),
        ({CLIENT_ID: None}, (None, client)),
    ]
    for entity, account in precedence:
        for known, value in values.items():
            if dict(known) == entity:
                return Limit(*account, value)
    return None


@settings(max_examples=examples(200))
@given(st.dictionaries(client_entities, st.floats(1, 100)), names, names)
def test_the_most_specific_of_eight_levels_applies(values: dict[Entity, float], user: str, client: str) -> None:
    assert Levels(values).limit_of(user, client) == naive_limit(values, user, client)


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.tuples(steps, st.sampled_from(["a", "b", "c"]), st.integers(0, 3000), st.booleans()), min_size=1, max_size=60
    )
)
def test_forgetting_idle_accounts_changes_no_answer(moves: list[tuple[int, str, int, bool]]) -> None:
    forgetful, keeper = RateQuota(Window()), {name: Rate(Window()) for name in "abc"}
    latest = now = 1_000_000
    for step, client, value, sweeps in moves:
        now += step
        latest = max(latest, now)  # the broker's clock is monotonic
        if sweeps:
            forgetful.forget_idle(latest)
        limit = Limit(None, client, 100.0)
        keeper[client].record(value, latest)
        assert forgetful.record(limit, value, latest) == keeper[client].throttle_ms(100, latest)


def test_a_flood_of_client_ids_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "ACCOUNTS_MAX", 500)
    quota = RateQuota(Window())
    now = 1_000_000
    for number in range(3000):
        quota.record(Limit(None, f"client-{number}", 1.0), 1, now)
        now += 50
    assert len(quota) <= 2 * Window().span_ms / 50 + 1
    assert len(list(quota.usages(now + Window().span_ms))) == 0
    for number in range(600):
        quota.record(Limit(None, f"client-{number}", 1.0), 1, now)
    assert len(quota) == 500


def test_long_client_ids_have_accounts_of_their_own_but_are_not_kept() -> None:
    quota = RateQuota(Window())
    ids = [f"{'x' * 32_000}{number}" for number in range(200)]
    for _ in range(2):
        for client_id in ids:
            quota.record(Limit("u" * 32_000, client_id, 1.0), 1, 1_000_000)
    usages = list(quota.usages(1_000_000))
    assert len(usages) == 200
    assert {usage.value for usage in usages} == {0.2}
    assert all(len((usage.user or "") + (usage.client_id or "")) <= 510 for usage in usages)


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_quotas_of_old_clusters_that_allow_nothing(value: float) -> None:
    quotas = ClientQuotas(Window(), Window())
    keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
    quotas.set({entity_of([("user", None)]): dict.fromkeys(keys, value)})
    limits = quotas.limits_of("alice", "client")
    assert limits.produce is not None and limits.fetch is not None
    assert quotas.produce.record(limits.produce, 1, 1_000_000) == INT_MAX
    assert quotas.fetch.record(limits.fetch, 0, 1_000_000) == 0
    mutations = quotas.mutation_limit("alice", "client")
    assert mutations is not None
    assert quotas.mutation.take(mutations, 1, 1_000_000, is_strict=False) == INT_MAX


def test_a_quota_on_the_name_of_a_host_is_not_that_of_all_addresses() -> None:
    quotas = ClientQuotas(Window(), Window())
    of_host = {entity_of([("ip", "db-1.example")]): {"connection_creation_rate": 1.0}}
    for others, allowed in (({}, 100), ({entity_of([("ip", None)]): {"connection_creation_rate": 5.0}}, 50)):
        quotas.set({**of_host, **others})
        throttled = [quotas.connection_throttle_ms(f"10.0.0.{allowed}", 1_000_000) for _ in range(100)]
        assert throttled.count(0) == allowed


@given(
    st.one_of(st.just(5e-324), st.floats(5e-324, 1e-3), st.floats(1e300, 1.7e308)),
    st.lists(st.integers(0, 2_000), min_size=1, max_size=20),
)
def test_no_limit_is_too_small_or_too_large(limit: float, gaps: list[int]) -> None:
    rate, bounded = RateQuota(Window()), RateQuota(Window(), throttle_ms_max=1000)
    strict, permissive = MutationQuota(Window()), MutationQuota(Window())
    account = Limit(None, "client", limit)
    now = 1_000_000
    for gap in gaps:
        now += gap
        assert 0 <= rate.record(account, 1, now) <= INT_MAX
        assert 0 <= bounded.record(account, 1, now) <= 1000
        assert 0 <= strict.take(account, 1, now, is_strict=True) <= INT_MAX
        assert 0 <= permissive.take(account, 1, now, is_strict=False) <= INT_MAX
        for quota in (rate, bounded, strict, permissive):
            assert len(list(quota.usages(now))) <= 1


@given(st.lists(st.integers(0, 2000), min_size=2, max_size=60), st.integers(1, 5))
def test_connections_of_an_address_are_accepted_at_its_rate(gaps: list[int], limit: int) -> None:
    quotas = ClientQuotas(Window(), Window())
    quotas.set({entity_of([("ip", None)]): {"connection_creation_rate": float(limit)}})
    now, accepted = 1_000_000, []
    for gap in gaps:
        now += gap
        throttle_ms = quotas.connection_throttle_ms("10.0.0.1", now)
        assert 0 <= throttle_ms <= 1000
        if not throttle_ms:
            accepted.append(now)
    for index, now in enumerate(accepted):
        lately = [time for time in accepted[: index + 1] if now - time < 10_000]
        assert len(lately) <= limit * 12  # the window has at most twelve seconds
    assert len(accepted) >= min(len(gaps), limit * 10)
