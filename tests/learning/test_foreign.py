"""Optimizers and tasks of the user's own; tests/checking/test_own_cases.py has further kinds."""

import re

import pytest
import torch
from torch import nn

from syncline.learning.foreign import DeclaredTask, TorchOptimizer, optimizer_of
from syncline.learning.layout import UNREACHED, Layout

KINDS = {"NAdam": {}, "Adagrad": {}, "RAdam": {"weight_decay": 0.1}, "SGD": {"momentum": 0.9, "nesterov": True}}
RATES = (0.1, 0.05, 0.02, 0.02)
LAYOUT = Layout.of({"matrix": torch.zeros(2, 2), "bias": torch.zeros(3)})  # of the seven weights


def steps(optimizer, weights: torch.Tensor, rates=RATES, first: int = 0) -> torch.Tensor:
    for number, rate in enumerate(rates, first):
        out = torch.empty_like(weights)
        optimizer.step(weights, gradient_of(number), rate, out)
        weights = out
    return weights


def gradient_of(number: int) -> torch.Tensor:
    """The bias is not reached in the second step."""
    gradient = torch.randn(7, generator=torch.Generator().manual_seed(number))
    if number == 1:
        gradient[4:] = UNREACHED
    return gradient


def ordinary(kind, options) -> torch.Tensor:
    """The weights after the same steps of a loop over tensors."""
    weights = torch.linspace(-1, 1, 7)
    named = {place.name: nn.Parameter(place.of(weights).clone()) for place in LAYOUT.places}
    optimizer = kind(list(named.values()), lr=RATES[0], **options)
    for number, rate in enumerate(RATES):
        for place, parameter in zip(LAYOUT.places, named.values(), strict=True):
            is_reached = not (number == 1 and place.name == "bias")
            parameter.grad = place.of(gradient_of(number)).clone() if is_reached else None
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in named.values()])


class Normed(torch.optim.Optimizer):
    """Divides by the norm of each tensor, as LARS does; its momentum and its count are in no usual place."""

    def __init__(self, params, lr) -> None:
        super().__init__(params, {"lr": lr, "count": 0, "past": []})
        self.scale = torch.ones(())
        self.words = {"seen": (1, 2)}

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    group["past"].append(parameter.grad.norm())
                    self.scale += sum(group["past"]) + group["count"] + self.words["seen"][0]
                    parameter.data = parameter - group["lr"] * parameter.norm() / self.scale * parameter.grad
                    group["count"] += 1
                    self.words["seen"] = (group["count"], 0)


ALL = {**{name: (getattr(torch.optim, name), options) for name, options in KINDS.items()}, "Normed": (Normed, {})}


@pytest.mark.parametrize("name", ALL)
def test_steps_are_those_of_torch_on_each_tensor(name: str) -> None:
    kind, options = ALL[name]
    optimizer = TorchOptimizer(kind, options, LAYOUT, 0.1)
    assert torch.equal(steps(optimizer, torch.linspace(-1, 1, 7)), ordinary(kind, options))


@pytest.mark.parametrize("name", ALL)
def test_it_goes_on_from_its_saved_state_wherever_that_is(name: str) -> None:
    kind, options = ALL[name]
    whole, first, second = (TorchOptimizer(kind, options, LAYOUT, 0.1) for _ in range(3))
    weights = torch.linspace(-1, 1, 7)
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
    found = steps(optimizer_of("plain", Plain, {"scale": 2.0}, LAYOUT, 0.1, 0.0), weights, (0.5,))
    assert torch.equal(found, weights - gradient_of(0))


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (lambda scal: object(), "optimizer=mine must be a torch.optim.Optimizer, or have the methods step"),
        (
            torch.optim.SGD,
            r"optimizer=mine cannot step these tensors: TypeError: SGD.__init__\(\) got an unexpected .* 'scal'",
        ),
        (Plain, "optimizer=mine does not take its config's keys: missing a required argument: 'scale'"),
    ],
)
def test_what_is_no_optimizer_or_has_another_key_is_one_line(found, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        optimizer_of("mine", found, {"scal": 0.5}, LAYOUT, 0.1, 0.0)


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
