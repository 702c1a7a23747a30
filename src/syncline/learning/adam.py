"""Adam and AdamW: the mean gradient over the root of the mean square, both corrected for their bias towards zero.

Shape legend: n elements of the block.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from syncline.learning.field_state import FieldState


@dataclass(eq=False, slots=True)
class Adam(FieldState):
    """Adam; with `decoupled`, AdamW.

    With d = g + weight_decay w (Adam) or d = g (AdamW), at step t = 1, 2, ...
        m <- beta1 m + (1 - beta1) d          v <- beta2 v + (1 - beta2) d^2          both start at 0
        w <- w - rate / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + eps)
    where AdamW first shrinks w by 1 - rate weight_decay.

    Source: Kingma and Ba (2015), algorithm 1; Loshchilov and Hutter (2019), algorithm 2, where the decay is scaled by
    the schedule alone, here by the rate. Both as in torch.optim.Adam and AdamW without amsgrad, equal in every bit.
    """

    beta1: float  # in [0, 1)
    beta2: float  # in [0, 1)
    eps: float  # > 0
    weight_decay: float  # >= 0
    decoupled: bool = False
    _steps: int = field(default=0, init=False)  # t
    _mean: Tensor | None = field(default=None, init=False)  # m [n]
    _square: Tensor | None = field(default=None, init=False)  # v [n]

    def step(self, weights: Tensor, gradient: Tensor, rate: float, out: Tensor) -> None:
        """Write the next weights [n] to `out` (which may be `weights`); `gradient` [n] is overwritten."""
        if self._mean is None or self._square is None:
            self._mean, self._square = torch.zeros_like(gradient), torch.zeros_like(gradient)
        self._steps += 1
        if self.weight_decay and self.decoupled:
            weights = torch.mul(weights, 1 - rate * self.weight_decay, out=out)
        elif self.weight_decay:
            gradient.add_(weights, alpha=self.weight_decay)
        self._mean.lerp_(gradient, 1 - self.beta1)
        self._square.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        step_size = rate / (1 - self.beta1**self._steps)
        root_of_correction = (1 - self.beta2**self._steps) ** 0.5
        # The gradient is no longer needed; its memory holds the denominator.
        denominator = torch.sqrt(self._square, out=gradient).div_(root_of_correction).add_(self.eps)
        torch.addcdiv(weights, self._mean, denominator, value=-step_size, out=out)

    def evaluated(self, weights: Tensor) -> Tensor:
        return weights
