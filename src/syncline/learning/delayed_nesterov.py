"""Nesterov's momentum for the pushes of asynchronous workers.

Shape legend: n elements of the block.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from syncline.learning.field_state import FieldState


@dataclass(eq=False, slots=True)
class DelayedNesterov(FieldState):
    """Steps without momentum, which is added at each N-th step for the last N.

    With d = g + weight_decay w
        S <- S + d                              w <- w - rate d / N
    and at each N-th step then
        m <- momentum m + S / N,  S <- 0        w <- w - rate momentum m                both start at 0

    At one rate N steps move the weights as one step of Sgd with nesterov and the mean of their d.

    Source: Liu et al. 2024, "Asynchronous local-SGD training for language modeling", algorithm 3 with c = 0. There N is
    the number of workers, and there is no weight decay.
    """

    momentum: float  # in [0, 1)
    delay: int  # N >= 1, in steps
    weight_decay: float  # >= 0
    _steps: int = field(default=0, init=False)  # since m has changed
    _sum: Tensor | None = field(default=None, init=False)  # S [n]
    _momentum: Tensor | None = field(default=None, init=False)  # m [n]

    def step(self, weights: Tensor, gradient: Tensor, rate: float, out: Tensor) -> None:
        """Write the next weights [n] to `out` (which may be `weights`); `gradient` [n] is overwritten."""
        if self._sum is None or self._momentum is None:
            self._sum, self._momentum = torch.zeros_like(gradient), torch.zeros_like(gradient)
        if self.weight_decay:
            gradient.add_(weights, alpha=self.weight_decay)
        self._sum.add_(gradient)
        self._steps += 1
        torch.add(weights, gradient, alpha=-rate / self.delay, out=out)
        if self._steps == self.delay:
            self._momentum.mul_(self.momentum).add_(self._sum, alpha=1 / self.delay)
            out.add_(self._momentum, alpha=-rate * self.momentum)
            self._sum.zero_()
            self._steps = 0

    def evaluated(self, weights: Tensor) -> Tensor:
        return weights
