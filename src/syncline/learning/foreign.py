"""Optimizers and tasks of the user's own, as the engines call them.

Shape legend: n elements of a block.
"""

import inspect
import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from syncline.datasets.batch_source import Batch, BatchSource
from syncline.learning.layout import Layout
from syncline.learning.optimizer import Optimizer
from syncline.learning.task import Task
from syncline.targets import fault

STATE = "state_dict"  # name of the tensor that holds the bytes which torch.save makes of one


class RateError(ValueError):
    """A step has changed the rate that the run sets."""


class _NotKeptError(ValueError):
    """A state that cannot be read again."""


class TorchOptimizer:
    """A `torch.optim.Optimizer` over the tensors of one block of weights.

    It sees each as a parameter of its name's shape and order of axes, with the gradient None where no pass has reached
    it. The learning rate of each group of parameters follows the run's schedule, by the ratio that it began with. Its
    state is that of its own `state_dict`.

    Args:
        make: the optimizer, from parameters and `lr`; a class, or a function of the user's.
        options: its further arguments.
        layout: of the block.
        lr: the run's rate before its schedule.
        takes_names: it is made from pairs of name and parameter.
    """

    def __init__(
        self, make: Callable[..., Any], options: Mapping[str, Any], layout: Layout, lr: float, takes_names: bool = False
    ) -> None:
        self._make, self._options, self._layout, self._lr = make, options, layout, lr
        self._takes_names = takes_names
        self._optimizer: torch.optim.Optimizer | None = None
        self._parameters: list[nn.Parameter] = []
        self._ratios: list[float] = []  # of each group's rate to the run's
        self._restored: Mapping[str, Tensor] = {}

    def step(self, weights: Tensor, gradient: Tensor, rate: float, out: Tensor) -> None:
        optimizer = self._made(weights)
        unreached = {place.begin for place in self._layout.unreached(gradient)}
        for place, parameter in zip(self._layout.places, self._parameters, strict=True):
            parameter.data.copy_(place.of(weights))
            parameter.grad = None if place.begin in unreached else place.of(gradient)
        rates = [rate * ratio for ratio in self._ratios]
        for group, own in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = own
        optimizer.step()
        if [group["lr"] for group in optimizer.param_groups] != rates:
            raise RateError("its step changes the lr of a group, which the run's schedule sets; let it keep a factor")
        self._write(out)

    def evaluated(self, weights: Tensor) -> Tensor:
        """Those to which an optimizer with a mode for evaluation changes the parameters (schedule-free ones)."""
        if self._optimizer is None and not self._restored:
            return weights
        optimizer: Any = self._made(weights)
        if not callable(getattr(optimizer, "eval", None)):
            return weights
        for place, parameter in zip(self._layout.places, self._parameters, strict=True):
            parameter.data.copy_(place.of(weights))
        optimizer.eval()
        found = torch.empty_like(weights)
        self._write(found)
        optimizer.train()
        return found

    def state_dict(self) -> dict[str, Tensor]:
        if self._optimizer is None:
            return dict(self._restored)
        saved = io.BytesIO()
        torch.save(self._optimizer.state_dict(), saved)
        return {STATE: torch.frombuffer(bytearray(saved.getbuffer()), dtype=torch.uint8)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self._restored = {name: tensor.clone() for name, tensor in state.items()}
        self._optimizer = None

    def _made(self, weights: Tensor) -> torch.optim.Optimizer:
        """The optimizer, which is made when the first weights are known."""
        if self._optimizer is None:
            self._parameters = [nn.Parameter(place.of(weights).clone()) for place in self._layout.places]
            names = [place.name for place in self._layout.places]
            first = list(zip(names, self._parameters, strict=True)) if self._takes_names else self._parameters
            self._optimizer = self._make(first, lr=self._lr, **self._options)
            if not isinstance(self._optimizer, torch.optim.Optimizer):
                raise TypeError(f"a torch.optim.Optimizer must be returned, got {type(self._optimizer).__name__}")
            self._ratios = [group["lr"] / self._lr for group in self._optimizer.param_groups]
            if callable(train := getattr(self._optimizer, "train", None)):
                train()
            if self._restored:
                self._optimizer.load_state_dict(_read(self._restored))
        return self._optimizer

    def _write(self, out: Tensor) -> None:
        for place, parameter in zip(self._layout.places, self._parameters, strict=True):
            place.of(out).copy_(parameter.data)


def _read(state: Mapping[str, Tensor]) -> dict[str, Any]:
    """What the optimizer's `state_dict` gave, on the CPU; `load_state_dict` takes it to where the parameters are."""
    saved = io.BytesIO(state[STATE].cpu().numpy().tobytes())
    read: dict[str, Any] = torch.load(saved, map_location="cpu", weights_only=True)
    return read


METHODS = ("step", "evaluated", "state_dict", "load_state_dict")
PARAMETERS = ("params", "named_parameters")  # the first argument of a function that makes a torch.optim.Optimizer


def optimizer_of(
    name: str, found: Any, options: Mapping[str, Any], layout: Layout, lr: float, weight_decay: float
) -> Optimizer:
    """The optimizer of one block.

    Args:
        found: a class of torch.optim, a function that makes one from `params` or `named_parameters`, or one with the
            methods of ours.
        options: its arguments, but for learning rate and weight decay.
        layout: of the block.
        lr: the run's rate before its schedule.
        weight_decay: of the run; 0 where it takes none.

    Raises:
        ValueError: it is none of these, does not take the options, cannot make a step of these tensors, or keeps
            something that no checkpoint can hold.
    """
    takes = inspect.signature(found).parameters
    options = {**options, **({"weight_decay": weight_decay} if "weight_decay" in takes else {})}
    if weight_decay and "weight_decay" not in takes:
        raise ValueError(
            f"optimizer={name} takes no weight_decay: optimizer.weight_decay must be 0, got {weight_decay}"
        )
    if is_torch(found):

        def made() -> TorchOptimizer:
            return TorchOptimizer(found, options, layout, lr, takes_names=next(iter(takes)) == PARAMETERS[1])

        try:
            _try_out(made, layout)
        except _NotKeptError as error:
            raise ValueError(f"optimizer={name} keeps what no checkpoint can hold: {error}") from None
        except RateError as error:
            raise ValueError(f"optimizer={name}: {error}") from None
        except (TypeError, RuntimeError, ValueError, AssertionError, AttributeError, KeyError) as error:
            told = fault(error) or f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise ValueError(f"optimizer={name} cannot step these tensors: {told}") from None
        return made()
    try:
        inspect.signature(found).bind(**options)
    except TypeError as error:
        raise ValueError(f"optimizer={name} does not take its config's keys: {error}") from None
    optimizer: Optimizer = found(**options)
    if missing := [method for method in METHODS if not callable(getattr(optimizer, method, None))]:
        rule = f"must be a torch.optim.Optimizer, or have the methods {', '.join(METHODS)}"
        raise ValueError(f"optimizer={name} {rule}; it has no {missing[0]}")
    return optimizer


def is_torch(found: Any) -> bool:
    """Whether it makes a `torch.optim.Optimizer`."""
    if isinstance(found, type):
        return issubclass(found, torch.optim.Optimizer)
    return next(iter(inspect.signature(found).parameters), None) in PARAMETERS


def _try_out(made: Callable[[], TorchOptimizer], layout: Layout) -> None:
    """A step, and one that goes on from the state that it left. Raises what they raise."""
    weights, gradient = torch.ones(layout.size), torch.full((layout.size,), 1e-3)
    optimizer = made()
    optimizer.step(weights, gradient.clone(), 1e-3, out=weights)
    try:
        state = optimizer.state_dict()
        _read(state)
    except (pickle.PickleError, TypeError, AttributeError):  # as told by what cannot be written, too
        must = "its state_dict must have tensors, numbers and texts alone, in dictionaries and lists"
        raise _NotKeptError(must) from None
    again = made()
    again.load_state_dict(state)
    again.step(weights, gradient, 1e-3, out=weights)
    again.evaluated(weights)


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
        self.made: Task = made

    @property
    def module(self) -> nn.Module | None:
        """What has its parameters and buffers: the task itself, or those of its attributes that have some."""
        if isinstance(self.made, nn.Module):
            return self.made
        found = nn.Module()
        for name, each in vars(self.made).items() if hasattr(self.made, "__dict__") else ():
            if isinstance(each, nn.Parameter):
                found.register_parameter(name, each)
            elif isinstance(each, nn.Module):
                found.add_module(name, each)
        has_some = any(True for _ in found.parameters()) or any(True for _ in found.buffers())
        return found if has_some else None

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        loss = self.made.loss(module, batch)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            given = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise ValueError(f"task={self._name}: loss must return a tensor of one number, got {given}")
        return loss

    def evaluate(self, module: nn.Module, source: BatchSource) -> dict[str, float]:
        found = self.made.evaluate(module, source)
        if not isinstance(found, dict) or set(found) != set(self._metrics):
            given = ", ".join(found) if isinstance(found, dict) else type(found).__name__
            raise ValueError(f"task={self._name}: evaluate must return {', '.join(self._metrics)}, got {given}")
        try:
            return {metric: float(found[metric]) for metric in self._metrics}
        except (TypeError, ValueError):
            given = ", ".join(f"{metric} {found[metric]}" for metric in self._metrics)
            raise ValueError(f"task={self._name}: evaluate must return numbers, got {given}") from None
