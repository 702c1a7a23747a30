"""Rennala and Ringmaster are as quick as the fastest workers allow, however slow the others are.

With workers that take tau_1 <= ... <= tau_P seconds a gradient, both make an update, or R updates, within
    t(R) = 2 min over m of (1/tau_1 + ... + 1/tau_m)^-1 (R + m)
(Tyurin and Richtarik 2023, theorem 7; Maranjyan et al. 2025, lemma 4.1), while BSP takes tau_P for each update.
MindFlayer does not wait for a gradient that is late by chance (Maranjyan, Omar and Richtarik 2024).
"""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_checks import Rows
from simulations import run

from syncline.strategies.bsp import BspOptions
from syncline.strategies.mindflayer import MindflayerOptions
from syncline.strategies.protocol import StrategyOptions
from syncline.strategies.rennala import RennalaOptions
from syncline.strategies.ringmaster import RingmasterOptions
from syncline.timing.cluster import ClusterConfig, ScenarioConfig
from syncline.timing.distributions import Trace

UPDATES = 60


def updates_s(options: StrategyOptions, gradient_s: list[float]) -> list[float]:
    """Times of the updates, from 0."""
    rows = Rows()
    cluster = ClusterConfig(workers=len(gradient_s), gradient_s=gradient_s)
    run(options, cluster, ScenarioConfig(), log=rows, updates=UPDATES)
    applied = {row.version: row.at for row in rows.of("applied")}
    return [0.0, *(applied[version] for version in sorted(applied))]


def bound_s(gradient_s: list[float], count: int) -> float:
    fastest = sorted(gradient_s)
    return 2 * min((count + m) / sum(1 / each for each in fastest[:m]) for m in range(1, len(fastest) + 1))


unequal = st.lists(st.floats(0.01, 100.0), min_size=1, max_size=8)


@given(unequal, st.integers(1, 12))
def test_rennala_makes_an_update_within_the_bound(gradient_s: list[float], count: int) -> None:
    times = updates_s(RennalaOptions(k=count), gradient_s)
    assert max(after - before for before, after in pairwise(times)) <= bound_s(gradient_s, count) * (1 + 1e-9)


@given(unequal, st.integers(1, 12), st.booleans())
def test_ringmaster_makes_r_updates_within_the_bound(gradient_s: list[float], count: int, stops: bool) -> None:
    times = updates_s(RingmasterOptions(r=count, stops=stops), gradient_s)
    longest = max(after - before for before, after in zip(times, times[count:], strict=False))
    assert longest <= bound_s(gradient_s, count) * (1 + 1e-9)


def test_one_worker_that_is_very_slow_delays_bsp_alone() -> None:
    gradient_s = [1.0, 1.0, 1.0, 1000.0]
    assert updates_s(BspOptions(), gradient_s)[-1] == pytest.approx(1000.0 * UPDATES)
    for options in (RennalaOptions(k=3), RingmasterOptions(r=3), RingmasterOptions(r=3, stops=True)):
        assert updates_s(options, gradient_s)[-1] <= 2 * UPDATES


def test_a_gradient_that_is_very_late_now_and_then_costs_mindflayer_its_time_alone() -> None:
    """Each takes 1 s, or 50 s with probability 1/4, which the worker does not wait for: E[T] in closed form."""
    late = Trace(values=(1.0, 1.0, 1.0, 50.0), block=1.0)
    cluster = ClusterConfig(workers=3, gradient_s=[1.0], jitter=late)
    updates, in_time = 4000, 0.75
    expected = in_time**3 * 1.0 + (1 - in_time) ** 3 * 50.0
    expected += (1 - in_time**3 - (1 - in_time) ** 3) * 2.0
    seconds = {
        options: run(options, cluster, updates=updates).time_s / updates
        for options in (MindflayerOptions(within=2.0), BspOptions())
    }
    mindflayer, bsp = seconds.values()
    deviation = 50.0 * math.sqrt((1 - in_time) ** 3 / updates)  # nearly all is of the rounds in which all are late
    assert mindflayer == pytest.approx(expected, abs=4 * deviation)
    assert bsp > 10 * mindflayer
