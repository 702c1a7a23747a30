"""Optimizers and tasks of the user's own, as the engines call them."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from syncline.datasets.batch_source import Batch, BatchSource
from syncline.learning.optimizer import Optimizer
from syncline.learning.task import Task


class TorchOptimizer:
    """A `torch.optim.Optimizer` over one block of weights.

    Each shard steps its own block, so that only optimizers that treat elements alone are the same for any number of
    shards.

    Args:
        kind: the optimizer's class.
        options: of it, without the learning rate.
    """

    def __init__(self, kind: type[torch.optim.Optimizer], options: Mapping[str, Any]) -> None:
        self._kind, self._options = kind, options
        self._optimizer: torch.optim.Optimizer | None = None
        self._block: nn.Parameter | None = None
        self._restored: Mapping[str, Tensor] = {}

    def step(self, weights: Tensor, gradient: Tensor, rate: float, out: Tensor) -> None:
        if self._optimizer is None or self._block is None:
            self._block = nn.Parameter(weights.clone())
            self._optimizer = self._kind([self._block], lr=rate, **self._options)  # type: ignore[call-arg]
            if self._restored:
                groups = self._optimizer.state_dict()["param_groups"]
                self._optimizer.load_state_dict({"state": {0: dict(self._restored)}, "param_groups": groups})
        self._block.data.copy_(weights)
        self._block.grad = gradient
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        out.copy_(self._block.data)

    def evaluated(self, weights: Tensor) -> Tensor:
        return weights

    def state_dict(self) -> dict[str, Tensor]:
        if self._optimizer is None:
            return dict(self._restored)
        state = self._optimizer.state_dict()["state"].get(0, {})
        return {name: torch.as_tensor(value) for name, value in state.items() if value is not None}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self._restored = {name: tensor.clone() for name, tensor in state.items()}
        self._optimizer = None


METHODS = ("step", "evaluated", "state_dict", "load_state_dict")


def optimizer_of(name: str, found: Any, options: Mapping[str, Any], weight_decay: float) -> Optimizer:
    """The optimizer of one block, from a class of torch.optim or one with the methods of ours.

    Raises:
        ValueError: it is neither, does not take the options, or cannot make a step of one block.
    """
    takes = inspect.signature(found).parameters
    options = {**options, **({"weight_decay": weight_decay} if "weight_decay" in takes else {})}
    if weight_decay and "weight_decay" not in takes:
        raise ValueError(
            f"optimizer={name} takes no weight_decay: optimizer.weight_decay must be 0, got {weight_decay}"
        )
    if isinstance(found, type) and issubclass(found, torch.optim.Optimizer):
        weights = torch.zeros(1)
        try:
            TorchOptimizer(found, options).step(weights, weights.clone(), 1.0, out=weights)
        except (TypeError, RuntimeError, ValueError) as error:
            raise ValueError(f"optimizer={name} cannot make a step: {error}") from None
        return TorchOptimizer(found, options)
    try:
        inspect.signature(found).bind(**options)
    except TypeError as error:
        raise ValueError(f"optimizer={name} does not take its config's keys: {error}") from None
    made = found(**options)
    if missing := [method for method in METHODS if not callable(getattr(made, method, None))]:
        rule = f"must be a torch.optim.Optimizer, or have the methods {', '.join(METHODS)}"
        raise ValueError(f"optimizer={name} {rule}; it has no {missing[0]}")
    optimizer: Optimizer = made
    return optimizer


class DeclaredTask:
    """A task of the user's own, held to the metrics that its file declares.

    Args:
        made: has the methods of `Task`.

    Raises:
        ValueError: it has not.
    """

    def __init__(self, name: str, made: Any, metrics: Sequence[str]) -> None:
        if missing := [method for method in ("loss", "evaluate") if not callable(getattr(made, method, None))]:
            raise ValueError(f"task={name} must have the methods loss and evaluate; it has no {missing[0]}")
        self._name, self._metrics = name, metrics
        self._task: Task = made

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        loss = self._task.loss(module, batch)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            given = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise ValueError(f"task={self._name}: loss must return a tensor of one number, got {given}")
        return loss

    def evaluate(self, module: nn.Module, source: BatchSource) -> dict[str, float]:
        found = self._task.evaluate(module, source)
        if not isinstance(found, dict) or set(found) != set(self._metrics):
            given = ", ".join(found) if isinstance(found, dict) else type(found).__name__
            raise ValueError(f"task={self._name}: evaluate must return {', '.join(self._metrics)}, got {given}")
        try:
            return {metric: float(found[metric]) for metric in self._metrics}
        except (TypeError, ValueError):
            given = ", ".join(f"{metric} {found[metric]}" for metric in self._metrics)
            raise ValueError(f"task={self._name}: evaluate must return numbers, got {given}") from None
