"""Learning rates by the epoch: against torch's schedulers, and invariants of all schedules."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import lr_scheduler

from syncline.learning.schedule import (
    CosineSchedule,
    EpochClock,
    ExponentialSchedule,
    LinearSchedule,
    Schedule,
    StepSchedule,
    WarmUp,
    build_schedule,
)
from syncline.rounds import Rounds

BASE = 0.05


def theirs(make: Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler], epochs: int) -> list[float]:
    """What a scheduler of torch gives at the start of every epoch."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=BASE)
    with warnings.catch_warnings():  # torch asks for an optimizer's step before the scheduler's
        warnings.simplefilter("ignore", UserWarning)
        scheduler = make(optimizer)
        rates = []
        for _ in range(epochs):
            rates.append(optimizer.param_groups[0]["lr"])
            scheduler.step()
    return rates


def ours(schedule: Schedule, epochs: int) -> list[float]:
    return [schedule.rate(float(epoch)) for epoch in range(epochs)]


factors = st.floats(0.01, 1.5)


@given(factors, st.lists(st.integers(1, 30), max_size=4).map(sorted))
def test_steps_are_torchs(factor, at_epochs):
    expected = theirs(lambda optimizer: lr_scheduler.MultiStepLR(optimizer, at_epochs, factor), 32)
    assert ours(StepSchedule(BASE, factor, tuple(at_epochs)), 32) == pytest.approx(expected, rel=1e-12)


@given(factors, st.integers(1, 10))
def test_a_staircase_is_torchs_step(factor, every):
    expected = theirs(lambda optimizer: lr_scheduler.StepLR(optimizer, every, factor), 32)
    assert ours(ExponentialSchedule(BASE, factor, every), 32) == pytest.approx(expected, rel=1e-12)


@given(factors)
def test_an_exponential_decay_is_torchs(factor):
    expected = theirs(lambda optimizer: lr_scheduler.ExponentialLR(optimizer, factor), 32)
    assert ours(ExponentialSchedule(BASE, factor, 1, staircase=False), 32) == pytest.approx(expected, rel=1e-12)


@given(st.floats(0.01, 1), st.integers(1, 20))
def test_a_linear_decay_is_torchs(final_factor, end):
    expected = theirs(lambda optimizer: lr_scheduler.LinearLR(optimizer, 1, final_factor, end), 32)
    assert ours(LinearSchedule(BASE, end, final_factor), 32) == pytest.approx(expected, rel=1e-9)


@given(st.floats(0.01, 1), st.integers(1, 31))
def test_a_cosine_is_torchs_until_its_end(final_factor, end):
    expected = theirs(lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, end, BASE * final_factor), end + 1)
    assert ours(CosineSchedule(BASE, end, final_factor), end + 1) == pytest.approx(expected, rel=1e-9)
    assert CosineSchedule(BASE, end, final_factor).rate(end + 5.0) == pytest.approx(BASE * final_factor)


@given(st.floats(0.01, 1), st.integers(1, 20))
def test_a_warm_up_is_torchs(start, epochs):
    expected = theirs(lambda optimizer: lr_scheduler.LinearLR(optimizer, start, 1, epochs), 32)
    assert ours(WarmUp(StepSchedule(BASE), epochs, start), 32) == pytest.approx(expected, rel=1e-9)


@given(st.integers(1, 20), st.integers(1, 20))
def test_warm_up_and_linear_decay_are_those_of_transformers(warmup, decay):
    """The factor of get_linear_schedule_with_warmup, whose steps are epochs here; its first rate is 0, too."""

    def factor(step: int) -> float:
        return step / warmup if step < warmup else max(0, warmup + decay - step) / decay

    expected = theirs(lambda optimizer: lr_scheduler.LambdaLR(optimizer, factor), 45)
    schedule = build_schedule(BASE, "linear", warmup_epochs=warmup, end_epoch=warmup + decay)
    assert ours(schedule, 45) == pytest.approx(expected, rel=1e-12)


def test_the_warm_up_of_goyal_et_al():
    """Section 2.2 and 5.1: from 0.1 to 0.1 k in five epochs, then a tenth at 30, 60 and 80; here k = 32."""
    schedule = build_schedule(3.2, factor=0.1, at_epochs=[30, 60, 80], warmup_epochs=5, warmup_from=1 / 32)
    rates = [schedule.rate(epoch) for epoch in (0, 2.5, 5, 29.9, 30, 60, 80)]
    assert rates == pytest.approx([0.1, 1.65, 3.2, 3.2, 0.32, 0.032, 0.0032])


@pytest.mark.parametrize(
    ("kind", "options", "factors"),
    [
        ("linear", {"end_epoch": 10.0, "final_factor": 0.2}, [0.6, 0.2]),
        ("linear", {"end_epoch": 10.0, "final_factor": 0.2, "from_epoch": 7.5}, [1.0, 0.2]),
        ("cosine", {"end_epoch": 10.0, "final_factor": 0.2}, [0.6, 0.2]),
        ("exponential", {"factor": 0.5, "every_epochs": 2.0}, [0.5, 0.25]),
        ("exponential", {"factor": 0.5, "every_epochs": 2.0, "staircase": False}, [0.5**1.25, 0.5**2.5]),
    ],
)
def test_a_decay_begins_at_the_base_where_the_warm_up_ends(kind, options, factors):
    schedule = build_schedule(BASE, kind, warmup_epochs=5.0, warmup_from=0.1, **options)
    rates = [schedule.rate(epoch) for epoch in (0.0, 2.5, 5.0, 7.5, 10.0)]
    assert rates == pytest.approx([BASE * factor for factor in (0.1, 0.55, 1.0, *factors)])


def test_without_a_warm_up_it_is_the_plain_schedule():
    assert build_schedule(0.05, factor=0.2, at_epochs=[1, 2]) == StepSchedule(0.05, 0.2, (1, 2))


def test_by_samples_the_epoch_does_not_depend_on_the_strategy():
    clock = EpochClock("samples", num_samples=50_000, num_workers=4, batch_size=128)
    assert clock.epoch(samples=25_000, updates=1) == clock.epoch(samples=25_000, updates=999) == 0.5


def test_by_server_updates_asynchronous_workers_drop_the_rate_p_times_too_early():
    """Four workers: the drop meant for epoch 200 comes at epoch 50, that for 250 at 62."""
    clock = EpochClock("server_updates", num_samples=50_000, num_workers=4, batch_size=125)
    asynchronous = {
        epoch: clock.epoch(samples=0, updates=int(epoch * 400)) for epoch in (50, 62.5)
    }  # 400 gradients, each an update
    assert asynchronous == {50: 200, 62.5: 250}
    assert clock.epoch(samples=0, updates=200 * 100) == 200, "BSP: 100 updates an epoch"


def test_by_server_updates_an_update_of_one_mini_batch_counts_as_one():
    """Post-local SGD: 400 updates of one mini-batch a worker, then of 8."""
    clock = EpochClock("server_updates", num_samples=50_000, num_workers=4, batch_size=125, rounds=Rounds(8, 400))
    assert [clock.epoch(samples=0, updates=updates) for updates in (100, 400, 500)] == [1, 4, 12]


@pytest.mark.parametrize(
    ("kind", "options"), [("exponential", {"every_epochs": 1e-30}), ("step", {"at_epochs": [1.0] * 400})]
)
def test_a_rate_that_no_float_can_hold_is_infinite(kind: str, options: dict[str, Any]) -> None:
    """The run diverges; the smallest ones are 0."""
    assert build_schedule(0.1, kind, 10.0, **options).rate(2.0) == math.inf
    assert build_schedule(0.1, kind, 0.1, **options).rate(2.0) == 0.0
