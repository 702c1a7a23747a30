"""Optimizers over contiguous blocks of the flat vector, one state a block; equal to torch.optim on the same gradients.

Shape legend: n elements of the block.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from syncline.learning.adam import Adam
from syncline.learning.delayed_nesterov import DelayedNesterov
from syncline.learning.layout import Layout
from syncline.learning.rmsprop import RmsProp
from syncline.learning.sgd import Sgd


class Optimizer(Protocol):
    """Computes the next weights of one block. It allocates memory only at the first step."""

    def step(self, weights: Tensor, gradient: Tensor, rate: float, out: Tensor) -> None:
        """Write the next weights [n] to `out` (which may be `weights`); `gradient` [n] is overwritten.

        Args:
            rate: learning rate of this step, >= 0.
        """

    def evaluated(self, weights: Tensor) -> Tensor:
        """The weights to evaluate in place of those [n] of the last step; the next step may change them."""

    def state_dict(self) -> dict[str, Tensor]:
        """The state; the optimizer's own tensors, which the next step changes."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore a copy of a state from `state_dict`."""


@dataclass(eq=False, slots=True)
class Averaged:
    """An optimizer for which the exponential moving average of the weights is evaluated.

        a <- decay_t a + (1 - decay_t) w        decay_t = min(decay, (1 + t) / (10 + t))

    after update t = 1, 2, ..., starting from the initial weights, which it forgets soon. The average is linear in the
    weights: for replicas with equal numbers of updates, the mean of their averages is the average of their mean, also
    if groups of them replace their weights by the group's mean in between.

    Source: TensorFlow's ExponentialMovingAverage with num_updates, as Inception was evaluated; there the running
    statistics of batch norm are averaged with the weights, here they stay the last ones.
    """

    optimizer: Optimizer
    decay: float  # in (0, 1)
    _updates: int = field(default=0, init=False)  # t
    _average: Tensor | None = field(default=None, init=False)  # a [n]

    def step(self, weights: Tensor, gradient: Tensor, rate: float, out: Tensor) -> None:
        if self._average is None:
            self._average = weights.clone()
        self.optimizer.step(weights, gradient, rate, out)
        self._updates += 1
        decay = min(self.decay, (1 + self._updates) / (10 + self._updates))
        self._average.lerp_(out, 1 - decay)

    def evaluated(self, weights: Tensor) -> Tensor:
        return weights if self._average is None else self._average

    def state_dict(self) -> dict[str, Tensor]:
        state = self.optimizer.state_dict()
        if self._average is not None:
            state |= {"average": self._average, "averaged_updates": torch.tensor(self._updates)}
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.optimizer.load_state_dict(state)
        self._average = state["average"].clone() if "average" in state else None
        self._updates = int(state["averaged_updates"]) if "averaged_updates" in state else 0


class InParts:
    """An optimizer for each part of a block, whose step may be made part by part.

    Args:
        make: that of the part at this place.
        places: of the parts in the block, which they cover.
    """

    def __init__(self, make: Callable[[slice], Optimizer], places: Sequence[slice]) -> None:
        self._places = sorted(places, key=lambda place: place.start)
        self._parts = {place.start: make(place) for place in places}

    def step(self, weights: Tensor, gradient: Tensor, rate: float, out: Tensor) -> None:
        for place in self._places:
            self.step_part(place, weights, gradient, rate, out)

    def step_part(self, place: slice, weights: Tensor, gradient: Tensor, rate: float, out: Tensor) -> None:
        """The step of one part of these vectors [n]."""
        self._parts[place.start].step(weights[place], gradient[place], rate, out[place])

    def evaluated(self, weights: Tensor) -> Tensor:
        own = [weights[place] for place in self._places]
        found = [self._parts[place.start].evaluated(part) for place, part in zip(self._places, own, strict=True)]
        if all(each is part for each, part in zip(found, own, strict=True)):
            return weights
        return torch.cat(found)

    def state_dict(self) -> dict[str, Tensor]:
        parts = self._parts.items()
        return {f"{start}.{name}": tensor for start, part in parts for name, tensor in part.state_dict().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for start, part in self._parts.items():
            own = f"{start}."
            part.load_state_dict({name.removeprefix(own): t for name, t in state.items() if name.startswith(own)})


class SkipsUnreached:
    """An optimizer of a block that leaves alone each tensor which no pass has reached, as torch.optim does without one.

    The block is stepped as a whole until there is such a tensor; from then on each tensor has a state of its own.

    Args:
        make: one of them, which treats elements alone.
        layout: of the block.
    """

    def __init__(self, make: Callable[[], Optimizer], layout: Layout) -> None:
        self._make, self._layout = make, layout
        self._whole = make()
        self._tensors: InParts | None = None

    def step(self, weights: Tensor, gradient: Tensor, rate: float, out: Tensor) -> None:
        unreached = {place.begin for place in self._layout.unreached(gradient)}
        if unreached and self._tensors is None:
            self._tensors = self._split(self._whole.state_dict())
        if self._tensors is None:
            self._whole.step(weights, gradient, rate, out)
            return
        for place in self._places:
            if place.start not in unreached:
                self._tensors.step_part(place, weights, gradient, rate, out)
            elif out is not weights:
                out[place] = weights[place]

    def evaluated(self, weights: Tensor) -> Tensor:
        return (self._tensors or self._whole).evaluated(weights)

    def state_dict(self) -> dict[str, Tensor]:
        return (self._tensors or self._whole).state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        if any("." in name for name in state):  # of tensors
            self._tensors = self._split({})
            self._tensors.load_state_dict(state)
        else:
            self._tensors = None
            self._whole.load_state_dict(state)

    @property
    def _places(self) -> list[slice]:
        return [slice(place.begin, place.end) for place in self._layout.places if place.size]

    def _split(self, state: Mapping[str, Tensor]) -> InParts:
        """An optimizer for each tensor, with its part of a state of the block."""
        tensors = InParts(lambda place: self._make(), self._places)
        parts = {}
        for place in self._places:
            for name, tensor in state.items():
                parts[f"{place.start}.{name}"] = tensor[place] if tensor.numel() == self._layout.size else tensor
        tensors.load_state_dict(parts)
        return tensors


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "adam": Adam,
    "adamw": partial(Adam, decoupled=True),
    "delayed_nesterov": DelayedNesterov,
    "rmsprop": RmsProp,
    "sgd": Sgd,
}
