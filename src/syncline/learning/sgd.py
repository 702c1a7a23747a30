"""Stochastic gradient descent with momentum.

Shape legend: n elements of the block.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from syncline.learning.field_state import FieldState

MOMENTUM_FORMS = ("torch", "lr_inside")


@dataclass(eq=False, slots=True)
class Sgd(FieldState):
    """SGD with momentum and weight decay.

    With d = g + weight_decay w, the two forms of momentum (equal for a constant rate) are
        torch:      b <- momentum b + d          w <- w - rate b        (torch.optim.SGD, dampening=0; b starts as d)
        nesterov:   the same b                   w <- w - rate (d + momentum b)         (torch.optim.SGD, nesterov=True)
        lr_inside:  b <- momentum b - rate d     w <- w + b             (MXNet's sgd_mom_update; b starts at 0)
    """

    momentum: float  # in [0, 1)
    weight_decay: float  # >= 0
    form: str = "torch"  # one of MOMENTUM_FORMS
    nesterov: bool = False  # goes with momentum > 0 and the form torch
    _momentum: Tensor | None = field(default=None, init=False)  # b [n]

    def __post_init__(self) -> None:
        assert self.form in MOMENTUM_FORMS
        assert not self.nesterov or (self.momentum > 0 and self.form == "torch")

    def step(self, weights: Tensor, gradient: Tensor, rate: float, out: Tensor) -> None:
        """Write the next weights [n] to `out` (which may be `weights`); `gradient` [n] is overwritten."""
        if self.weight_decay:
            gradient.add_(weights, alpha=self.weight_decay)
        if not self.momentum:
            torch.add(weights, gradient, alpha=-rate, out=out)
        elif self.form == "torch":
            if self._momentum is None:
                self._momentum = gradient.clone()
            else:
                self._momentum.mul_(self.momentum).add_(gradient)
            moved = gradient.add_(self._momentum, alpha=self.momentum) if self.nesterov else self._momentum
            torch.add(weights, moved, alpha=-rate, out=out)
        else:
            if self._momentum is None:
                self._momentum = torch.zeros_like(gradient)
            self._momentum.mul_(self.momentum).add_(gradient, alpha=-rate)
            torch.add(weights, self._momentum, out=out)

    def evaluated(self, weights: Tensor) -> Tensor:
        return weights
