"""Update rules against the recurrences of their papers, on a quadratic whose workers push in turn."""

import math
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syncline.learning.layout import UNREACHED
from syncline.learning.parameters import Gradient, Parameters, Version
from syncline.learning.sgd import Sgd
from syncline.learning.update import AppliedPush, DelayCompensated, GapAware, StalenessAware, UpdateRule
from syncline.server.shard import Shard
from syncline.strategies.asp import AspOptions

WORKERS, UPDATES = 4, 40
RATE, CURVATURE, BEGIN = 0.3, 0.8, 5.0  # the loss is CURVATURE w^2 / 2

Rule = Callable[[], UpdateRule]
Correction = Callable[[float, int, float], float]
"""(gradient, staleness, by how much the weight has moved) -> the gradient that the step is made with."""


def trajectory(rule: UpdateRule) -> list[float]:
    """The weight after each update, on a shard of one weight."""
    parameters = Parameters(
        block=slice(0, 1),
        current=Version(torch.tensor([BEGIN], dtype=torch.float64), torch.zeros(0)),
        optimizer=Sgd(momentum=0.0, weight_decay=0.0),
        rate=lambda samples, updates: RATE,
        num_workers=WORKERS,
        rule=rule,
    )
    shard = Shard(0, AspOptions().start(WORKERS), num_workers=WORKERS, batch_size=1, limits=None, parameters=parameters)
    weights = [BEGIN]
    for worker in range(WORKERS):
        shard.send(worker)
    versions = [0] * WORKERS
    for update in range(UPDATES):
        worker = update % WORKERS
        gradient = Gradient(torch.tensor([CURVATURE * weights[versions[worker]]], dtype=torch.float64), torch.zeros(0))
        list(shard.push(float(update), update, worker, versions[worker], 0, update // WORKERS, 1.0, gradient))
        versions[worker] = update + 1
        weights.append(parameters.current.weights.item())
    assert parameters.allocated <= 2 * WORKERS + 2, "of each worker the last one that it pushed, and the one it has"
    return weights


def recurrence(correction: Correction) -> list[float]:
    """The same in plain numbers: an update is of the weight WORKERS - 1 updates before, at first of the initial one."""
    weights = [BEGIN]
    for update in range(UPDATES):
        begun = max(0, update - WORKERS + 1) if update >= WORKERS else 0
        gradient = CURVATURE * weights[begun]
        weights.append(weights[-1] - RATE * correction(gradient, update - begun, weights[-1] - weights[begun]))
    return weights


def mean_square() -> Correction:
    state = [0.0]

    def compensated(gradient: float, staleness: int, moved: float) -> float:
        state[0] = 0.95 * state[0] + 0.05 * gradient**2
        return gradient + 0.1 / math.sqrt(state[0] + 1e-7) * gradient**2 * moved

    return compensated


def usual_step() -> Correction:
    state = [0.0, 0]

    def per_step(gradient: float, staleness: int, moved: float) -> float:
        state[0], state[1] = 0.9 * state[0] + 0.1 * abs(RATE * gradient), state[1] + 1
        return gradient / (1 + abs(moved) / (state[0] / (1 - 0.9 ** state[1])))

    return per_step


@pytest.mark.parametrize(
    ("rule", "correction"),
    [
        (UpdateRule(), lambda gradient, staleness, moved: gradient),
        (StalenessAware(0, 1.0), lambda gradient, staleness, moved: gradient / max(1, staleness)),
        (StalenessAware(1, 0.5), lambda gradient, staleness, moved: gradient / math.sqrt(1 + staleness)),
        (DelayCompensated(0.04, False, 0.0), lambda gradient, staleness, moved: gradient + 0.04 * gradient**2 * moved),
        (DelayCompensated(0.1, True, 0.95), mean_square()),
        (GapAware(0.9), usual_step()),
    ],
    ids=["mean", "staleness aware", "FedBuff", "DC-ASGD-c", "DC-ASGD-a", "gap aware"],
)
def test_the_trajectory_is_that_of_the_paper(rule: UpdateRule, correction: Correction) -> None:
    assert trajectory(rule) == pytest.approx(recurrence(correction), rel=1e-12, abs=1e-12)


every_rule = pytest.mark.parametrize(
    "make",
    [
        UpdateRule,
        lambda: StalenessAware(0, 1.0),
        lambda: StalenessAware(1, 0.5),
        lambda: DelayCompensated(0.04, False, 0.0),
        lambda: DelayCompensated(2.0, True, 0.95),
        lambda: GapAware(0.99),
    ],
)
values = st.floats(-1e3, 1e3, width=32)


@every_rule
@given(st.lists(st.tuples(values, values), min_size=1, max_size=6), st.floats(1e-6, 10.0))
def test_a_fresh_push_stays_as_it_is(make: Rule, elements: list[tuple[float, float]], rate: float) -> None:
    """So with one worker every rule is the ordinary loop, in every bit."""
    weights, gradient = torch.tensor(elements).T
    rule = make()
    for _ in range(3):
        push = AppliedPush(gradient.clone(), torch.zeros(0), 0, 0, 1, 1, weights)
        rule(weights, [push], rate)
        assert torch.equal(push.gradient, gradient)
        assert torch.equal(push.gradient.signbit(), gradient.signbit())


@every_rule
def test_a_gradient_that_no_pass_has_reached_stays_one(make: Rule) -> None:
    push = AppliedPush(torch.full((3,), UNREACHED), torch.zeros(0), 0, 5, 1, 1, torch.tensor([-1.0, 0.0, 1.0]))
    make()(torch.zeros(3), [push], 0.1)
    assert torch.equal(push.gradient, torch.zeros(3))
    assert push.gradient.signbit().all()


@every_rule
def test_a_rule_continues_from_its_state(make: Rule) -> None:
    def pushes() -> Iterator[AppliedPush]:
        generator = torch.Generator().manual_seed(0)
        for staleness in range(6):
            gradient, weights = torch.randn(2, 4, generator=generator)
            yield AppliedPush(gradient, torch.zeros(0), 0, staleness, 1, 1, weights)

    whole, first, then = make(), make(), make()
    expected, found = [], []
    for push in pushes():
        whole(torch.ones(4), [push], 0.1)
        expected.append(push.gradient)
    for number, push in enumerate(pushes()):
        if number == 3:
            then.load_state_dict({name: each.clone() for name, each in first.state_dict().items()})
        (first if number < 3 else then)(torch.ones(4), [push], 0.1)
        found.append(push.gradient)
    assert all(map(torch.equal, found, expected))
    then.load_state_dict({})
    assert not then.state_dict()
