"""Optimizers of the cases of test_own_cases.py; each docstring has its kind, and the public report of such a one."""

import numpy as np
import torch
from torch.optim import Optimizer


class Plain(Optimizer):
    """Ordinary: `moved(group, parameter)` is what a step takes off."""

    def __init__(self, params, lr=0.05, **defaults):
        super().__init__(params, {"lr": lr, **defaults})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.sub_(self.moved(group, parameter))

    def moved(self, group, parameter):
        return group["lr"] * parameter.grad


# Right.


class Factored(Plain):
    """Norms: second moments of rows of matrices, made when it is built. EleutherAI/bergson#344"""

    def __init__(self, params, lr=0.005):
        super().__init__(params, lr)
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["rows"] = torch.zeros(len(parameter))

    def moved(self, group, parameter):
        squares = parameter.grad.square()
        rows = self.state[parameter]["rows"].lerp_(squares.mean(1) if parameter.ndim > 1 else squares, 0.1)
        return group["lr"] * parameter.grad / (rows.sqrt() + 1e-3).view(-1, *[1] * (parameter.ndim - 1))


class ClipsAll(Plain):
    """Norms: that of all gradients together is bounded within `step`. pytorch/pytorch#89136"""

    def step(self, closure=None):
        for group in self.param_groups:
            torch.nn.utils.clip_grad_norm_(group["params"], 0.5)
        super().step()


class ScheduleFree(Optimizer):
    """State: evaluation is at another point than gradients, by `train` and `eval`. facebookresearch/schedule_free#22"""

    def __init__(self, params, lr=0.05, beta=0.9):
        super().__init__(params, {"lr": lr, "beta": beta, "k": 0, "is_training": False})

    def eval(self):
        self.set(False, lambda group: 1 - 1 / group["beta"])

    def train(self):
        self.set(True, lambda group: 1 - group["beta"])

    @torch.no_grad()
    def set(self, is_training, share):
        for group in self.param_groups:
            for parameter in group["params"] if group["is_training"] != is_training else ():
                if "z" in self.state[parameter]:
                    parameter.lerp_(self.state[parameter]["z"], share(group))
            group["is_training"] = is_training

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            assert group["is_training"]
            weight = 1 / (group["k"] + 1)
            for parameter in group["params"]:
                z = self.state[parameter].setdefault("z", parameter.clone())
                share = group["beta"] * (1 - weight) - 1
                parameter.lerp_(z, weight).add_(parameter.grad, alpha=group["lr"] * share)
                z.sub_(parameter.grad, alpha=group["lr"])
            group["k"] += 1


class RateOfGroups(Plain):
    """Groups: the head learns ten times as fast. facebookresearch/fairscale#697"""

    def __init__(self, params, lr=0.01):
        params = list(params)
        super().__init__([{"params": params[:-2]}, {"params": params[-2:], "lr": 10 * lr}], lr)


def by_names(named_parameters, lr=0.05):
    """Groups: by the names of parameters. frgfm/holocron#107"""
    named = list(named_parameters)
    weights, biases = ([each for name, each in named if ("bias" in name) == is_bias] for is_bias in (False, True))
    return torch.optim.SGD([{"params": weights, "weight_decay": 0.1}, {"params": biases, "lr": 2 * lr}], lr=lr)


# Broken.


class SlowWeights(Plain):
    """State: slow weights in a list of its own, as those of Lookahead. kozistr/pytorch_optimizer#310"""

    def __init__(self, params, lr=0.05):
        super().__init__(params, lr)
        self.steps, self.slow = 0, [each.detach().clone() for each in self.param_groups[0]["params"]]

    @torch.no_grad()
    def step(self, closure=None):
        super().step()
        self.steps += 1
        for slow, parameter in zip(self.slow, self.param_groups[0]["params"], strict=True):
            if self.steps % 3 == 0:
                parameter.copy_(slow.lerp_(parameter, 0.5))


class KeepsIterator(Plain):
    """State: an iterator, which no checkpoint can hold."""

    def __init__(self, params, lr=0.05):
        super().__init__(params, lr, rates=iter(range(1, 1000)))

    def moved(self, group, parameter):
        return group["lr"] / next(group["rates"]) * parameter.grad


class ReadsAttribute(Plain):
    """Gradients: it reads an attribute of parameters, which is not sent. facebookresearch/fairscale#1101"""

    def moved(self, group, parameter):
        return group["lr"] * parameter.scaled_grad


class NoDecay(Plain):
    """Options: it takes no weight decay, which is asked for."""


class Draws(Plain):
    """Random numbers: noise of a generator that is made when it is built, without a seed."""

    def __init__(self, params, lr=0.05):
        super().__init__(params, lr)
        self.generator = np.random.default_rng()

    def moved(self, group, parameter):
        return group["lr"] * (1 + 0.1 * self.generator.normal()) * parameter.grad


class OwnRate(Plain):
    """Options: its steps shrink the rate of its groups, as hypergradient descent does."""

    def step(self, closure=None):
        super().step()
        for group in self.param_groups:
            group["lr"] *= 0.8
