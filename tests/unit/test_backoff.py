"""Every wait after a failure: its bounds, that it never shrinks, and that what failed together does not come back together."""

from __future__ import annotations

import random
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared import backoff
from shared.errors import Failure, FailureKind
from shared.queue import policy
from shared.queue.policy import Policy

HOUR = 3600.0
FAILED_TOGETHER = 10_000
DECISION = Path(__file__).parents[2] / "docs" / "decisions" / "0007-decorrelated-jitter.md"

attempts = st.integers(min_value=1, max_value=10**6)
draws = st.floats(min_value=0, max_value=1, exclude_max=True)
waits = st.floats(min_value=0, max_value=10**6)


def busiest_second(moments: Iterable[float]) -> float:
    """The share of the moments that fall into the fullest second."""
    seconds = Counter(int(moment) for moment in moments)
    return max(seconds.values()) / seconds.total()


def life(wait: policy.Wait, draw: Callable[[], float]) -> float:
    """Seconds from the first try to the last of the deliveries' tries."""
    last = total = 0.0
    for failures in range(1, len(backoff.DELIVERY_SECONDS) + 1):
        last = wait(failures, last, draw())
        total += last
    return total


# The AI jobs' rule


def test_the_ai_jobs_wait_ten_twenty_forty_and_at_most_three_hundred_seconds() -> None:
    assert [backoff.exponential(n) for n in range(1, 8)] == [10, 20, 40, 80, 160, 300, 300]


@given(attempts)
def test_an_exponential_wait_never_shrinks_and_never_passes_its_cap(n: int) -> None:
    assert backoff.exponential(n) <= backoff.exponential(n + 1) <= backoff.AI_CAP_SECONDS


@given(attempts, waits, draws)
def test_the_ai_jobs_have_no_jitter(n: int, last: float, draw: float) -> None:
    assert policy.exponential(n, last, draw) == backoff.exponential(n)


# The deliveries' schedule


@given(attempts, draws)
def test_a_scheduled_wait_lies_between_half_and_the_whole_of_its_step(n: int, draw: float) -> None:
    whole = backoff.DELIVERY_SECONDS[min(n, 7) - 1]
    assert whole / 2 <= backoff.scheduled(n, draw) <= whole


@given(attempts, draws, draws)
def test_a_scheduled_wait_never_shrinks_from_one_step_to_the_next(n: int, draw: float, other: float) -> None:
    assert backoff.scheduled(n, draw) <= backoff.scheduled(n + 1, draw)
    if n < len(backoff.DELIVERY_SECONDS):  # each step is at least four times the one before: no draw undoes that
        assert backoff.scheduled(n, draw) <= backoff.scheduled(n + 1, other)


def test_the_schedule_is_that_of_the_design() -> None:
    minute = 60
    whole = [5, 25, 2 * minute, 10 * minute, HOUR, 6 * HOUR, 24 * HOUR]
    assert list(backoff.DELIVERY_SECONDS) == whole
    assert [backoff.scheduled(n, 0) for n in range(1, 8)] == [wait / 2 for wait in whole]


@given(st.randoms(use_true_random=False))
def test_a_delivery_lives_for_sixteen_to_thirty_one_hours(chance: random.Random) -> None:
    assert 16 <= round(life(policy.scheduled, chance.random) / HOUR) <= 31


def test_the_schedule_s_shortest_and_longest_life() -> None:
    assert round(life(policy.scheduled, lambda: 0.0) / HOUR) == 16
    assert round(life(policy.scheduled, lambda: 1.0) / HOUR) == 31


@pytest.mark.parametrize("seed", range(5))
def test_what_failed_together_does_not_come_back_together(seed: int) -> None:
    chance = random.Random(seed)
    third = [backoff.scheduled(3, chance.random()) for _ in range(FAILED_TOGETHER)]
    assert busiest_second(third) < 0.025
    # And it has failed together from the first try on.
    since = [sum(backoff.scheduled(n, chance.random()) for n in (1, 2, 3)) for _ in range(FAILED_TOGETHER)]
    assert busiest_second(since) < 0.025


def test_without_a_draw_they_would_all_come_back_in_one_second() -> None:
    assert busiest_second([backoff.scheduled(3, 0.5)] * FAILED_TOGETHER) == 1


# Decorrelated jitter


@given(waits, draws)
def test_a_decorrelated_wait_lies_between_the_base_and_three_times_the_last(last: float, draw: float) -> None:
    wait = backoff.decorrelated(last, draw)
    assert backoff.DECORRELATED_BASE_SECONDS <= wait <= backoff.DECORRELATED_CAP_SECONDS
    assert wait <= 3 * max(last, backoff.DECORRELATED_BASE_SECONDS)


@given(waits, waits, draws)
def test_a_decorrelated_wait_grows_with_the_last_one(last: float, further: float, draw: float) -> None:
    assert backoff.decorrelated(last, draw) <= backoff.decorrelated(last + further, draw)


def test_decorrelated_jitter_is_as_its_source_has_it() -> None:
    """sleep = min(cap, random_between(base, sleep × 3)), and the sleep before the first one is the base."""
    chance, same = random.Random(7), random.Random(7)
    sleep, last = 5.0, 0.0
    for _ in range(200):
        sleep = min(86_400.0, chance.uniform(5.0, sleep * 3))
        last = backoff.decorrelated(last, same.random())
        assert last == pytest.approx(sleep)


def test_the_decision_on_decorrelated_jitter_tells_its_median_life() -> None:
    chance = random.Random(1)
    lives = [life(policy.decorrelated, chance.random) for _ in range(20_000)]
    median = statistics.median(lives)
    told = re.search(r"median life of (\d+) s", DECISION.read_text(encoding="utf-8"))
    assert told
    assert median == pytest.approx(float(told[1]), rel=0.03)
    assert median < 300
    assert statistics.median([life(policy.scheduled, chance.random) for _ in range(2_000)]) > 20 * HOUR


# Reconnecting


@given(st.integers(min_value=1, max_value=10**6), draws)
def test_reconnecting_waits_between_half_and_all_of_a_capped_doubling(failures: int, draw: float) -> None:
    longest = min(0.1 * 2.0 ** min(failures, 32), 5.0)
    assert longest / 2 <= backoff.reconnect(failures, draw) <= longest


def test_reconnecting_workers_spread() -> None:
    chance = random.Random(1)
    tenths = Counter(int(backoff.reconnect(6, chance.random()) * 4) for _ in range(FAILED_TOGETHER))
    assert max(tenths.values()) < 0.12 * FAILED_TOGETHER


# Policies


def test_a_wait_follows_a_failure() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        backoff.exponential(0)
    with pytest.raises(ValueError, match="at least 1"):
        backoff.scheduled(0, 0.5)


@given(attempts, waits, draws, st.none() | st.floats(min_value=0, max_value=900))
def test_whoever_asks_for_a_longer_wait_gets_it(n: int, last: float, draw: float, asked: float | None) -> None:
    failure = Failure(FailureKind.TRANSIENT, "unavailable", "not now", retry_after=asked)
    for wait in (policy.exponential, policy.scheduled, policy.decorrelated):
        delay = Policy(wait=wait, draw=lambda: draw).delay(n, failure, last)
        assert delay == max(wait(n, last, draw), asked or 0)


def test_a_policy_draws_anew_each_time() -> None:
    failure = Failure(FailureKind.TRANSIENT, "unavailable", "not now")
    deliveries = Policy(wait=policy.scheduled)
    assert len({deliveries.delay(3, failure) for _ in range(50)}) > 40
