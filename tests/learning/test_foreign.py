"""Optimizers and tasks of the user's own; tests/checking/test_own_cases.py has further kinds."""

import re

import pytest
import torch
from torch import nn

from syncline.learning.foreign import DeclaredTask, optimizer_of
from syncline.learning.layout import Layout

LAYOUT = Layout.of({"matrix": torch.zeros(2, 2), "bias": torch.zeros(3)})


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
    weights, gradient, found = torch.ones(7), torch.randn(7), torch.empty(7)
    optimizer_of("plain", Plain, {"scale": 2.0}, LAYOUT, 0.1, 0.0).step(weights, gradient, 0.5, out=found)
    assert torch.equal(found, weights - gradient)


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
