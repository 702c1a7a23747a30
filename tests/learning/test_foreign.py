"""Optimizers and tasks of the user's own."""

import re

import pytest
import torch
from torch import nn

from syncline.learning.foreign import DeclaredTask, TorchOptimizer, optimizer_of

KINDS = {"NAdam": {}, "Adagrad": {}, "RAdam": {"weight_decay": 0.1}, "SGD": {"momentum": 0.9, "nesterov": True}}
RATES = (0.1, 0.05, 0.02, 0.02)


def steps(optimizer, weights: torch.Tensor, rates=RATES, first: int = 0) -> torch.Tensor:
    for number, rate in enumerate(rates, first):
        out = torch.empty_like(weights)
        optimizer.step(weights, gradient_of(number), rate, out)
        weights = out
    return weights


def gradient_of(number: int) -> torch.Tensor:
    return torch.randn(7, generator=torch.Generator().manual_seed(number))


@pytest.mark.parametrize("name", KINDS)
def test_steps_are_those_of_torch(name: str) -> None:
    kind, options = getattr(torch.optim, name), KINDS[name]
    weights = torch.linspace(-1, 1, 7)
    parameter = nn.Parameter(weights.clone())
    reference = kind([parameter], lr=RATES[0], **options)
    for number, rate in enumerate(RATES):
        parameter.grad = gradient_of(number)
        reference.param_groups[0]["lr"] = rate
        reference.step()
    assert torch.equal(steps(TorchOptimizer(kind, options), weights), parameter.detach())


@pytest.mark.parametrize("name", KINDS)
def test_it_goes_on_from_its_saved_state(name: str) -> None:
    kind, options = getattr(torch.optim, name), KINDS[name]
    whole, weights = TorchOptimizer(kind, options), torch.linspace(-1, 1, 7)
    first, second = TorchOptimizer(kind, options), TorchOptimizer(kind, options)
    half = steps(first, weights, RATES[:2])
    second.load_state_dict({key: tensor.clone() for key, tensor in first.state_dict().items()})
    assert torch.equal(steps(second, half, RATES[2:], first=2), steps(whole, weights))


class Plain:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def step(self, weights, gradient, rate, out) -> None:
        torch.sub(weights, gradient, alpha=rate * self.scale, out=out)

    def evaluated(self, weights):
        return weights

    def state_dict(self):
        return {}

    def load_state_dict(self, state) -> None: ...


def test_an_optimizer_with_our_methods_is_taken_as_it_is() -> None:
    weights = torch.ones(7)
    found = steps(optimizer_of("plain", Plain, {"scale": 2.0}, 0.0), weights, (0.5,))
    assert torch.equal(found, weights - gradient_of(0))


@pytest.mark.parametrize(
    ("found", "decay", "line"),
    [
        (lambda: object(), 0.0, "optimizer=mine must be a torch.optim.Optimizer, or have the methods step"),
        (lambda: object(), 0.1, "optimizer=mine takes no weight_decay: optimizer.weight_decay must be 0, got 0.1"),
    ],
)
def test_what_is_no_optimizer_is_one_line(found, decay: float, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        optimizer_of("mine", found, {}, decay)


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (torch.optim.SGD, r"optimizer=mine cannot make a step: SGD.__init__\(\) got an unexpected .* 'scal'"),
        (Plain, "optimizer=mine does not take its config's keys: missing a required argument: 'scale'"),
    ],
)
def test_an_optimizer_with_another_key_is_one_line(found, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        optimizer_of("mine", found, {"scal": 0.5}, 0.0)


@pytest.mark.parametrize("kind", ["LBFGS", "SparseAdam", "Muon"])
def test_an_optimizer_that_needs_more_than_a_block_and_its_gradient_is_one_line(kind: str) -> None:
    with pytest.raises(ValueError, match=f"^optimizer={kind} cannot make a step: [^\n]*$"):
        optimizer_of(kind, getattr(torch.optim, kind), {}, 0.0)


class Task:
    def __init__(self, loss, metrics) -> None:
        self._loss, self._metrics = loss, metrics

    def loss(self, module, batch):
        return self._loss

    def evaluate(self, module, source):
        return self._metrics


def test_a_task_returns_its_declared_metrics_in_their_order() -> None:
    task = DeclaredTask("mine", Task(torch.tensor(1.0), {"b": torch.tensor(2.0), "a": 1}), ["a", "b"])
    assert list(task.evaluate(nn.Identity(), None).items()) == [("a", 1.0), ("b", 2.0)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (object(), "task=mine must have the methods loss and evaluate; it has no loss"),
        (Task(torch.ones(3), {"a": 1}), "task=mine: loss must return a tensor of one number, got (3,)"),
        (Task(3.0, {"a": 1}), "task=mine: loss must return a tensor of one number, got float"),
        (Task(torch.tensor(1.0), {"b": 1}), "task=mine: evaluate must return a, got b"),
        (Task(torch.tensor(1.0), {"a": None}), "task=mine: evaluate must return numbers, got a None"),
    ],
    ids=lambda value: "",
)
def test_a_task_that_breaks_a_rule_is_one_line(made, line: str) -> None:
    def use() -> None:
        task = DeclaredTask("mine", made, ["a"])
        task.loss(nn.Identity(), ())
        task.evaluate(nn.Identity(), None)  # type: ignore[arg-type]

    with pytest.raises(ValueError, match=re.escape(line)):
        use()
