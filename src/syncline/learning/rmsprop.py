"""RMSProp: the gradient over the root of its mean square.

Shape legend: n elements of the block.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from syncline.learning.field_state import SCRATCH, FieldState

RMSPROP_FORMS = ("torch", "tensorflow")


@dataclass(eq=False, slots=True)
class RmsProp(FieldState):
    """RMSProp with momentum and (L2) weight decay, not centred.

    With d = g + weight_decay w and v <- alpha v + (1 - alpha) d^2, the two forms are
        torch:       b <- momentum b + d / (sqrt(v) + eps)         w <- w - rate b     v starts at 0
        tensorflow:  b <- momentum b + rate d / sqrt(v + eps)      w <- w - b          v starts at 1
    and b at 0. They differ greatly for large eps: with eps = 1, as for Inception, the second one divides by at least 1
    from the first step on.

    Source: torch.optim.RMSprop, equal in every bit; tf.train.RMSPropOptimizer of TensorFlow 1, equal to rounding.
    """

    alpha: float  # decay of the mean square, in [0, 1)
    eps: float  # > 0
    momentum: float  # in [0, 1)
    weight_decay: float  # >= 0
    form: str = "torch"  # one of RMSPROP_FORMS
    _square: Tensor | None = field(default=None, init=False)  # v [n]
    _momentum: Tensor | None = field(default=None, init=False)  # b [n], if there is momentum
    _root: Tensor | None = field(default=None, init=False, metadata=SCRATCH)  # [n]

    def __post_init__(self) -> None:
        assert self.form in RMSPROP_FORMS

    def step(self, weights: Tensor, gradient: Tensor, rate: float, out: Tensor) -> None:
        """Write the next weights [n] to `out` (which may be `weights`); `gradient` [n] is overwritten."""
        is_torch = self.form == "torch"
        if self._square is None:
            self._square = torch.full_like(gradient, 0 if is_torch else 1)
        if self._root is None:
            self._root = torch.empty_like(gradient)
        if self.weight_decay:
            gradient.add_(weights, alpha=self.weight_decay)
        self._square.mul_(self.alpha).addcmul_(gradient, gradient, value=1 - self.alpha)
        if is_torch:
            root = torch.sqrt(self._square, out=self._root).add_(self.eps)
        else:
            root = torch.add(self._square, self.eps, out=self._root).sqrt_()
        if not self.momentum:
            torch.addcdiv(weights, gradient, root, value=-rate, out=out)
            return
        if self._momentum is None:
            self._momentum = torch.zeros_like(gradient)
        self._momentum.mul_(self.momentum).addcdiv_(gradient, root, value=1 if is_torch else rate)
        torch.add(weights, self._momentum, alpha=-rate if is_torch else -1, out=out)

    def evaluated(self, weights: Tensor) -> Tensor:
        return weights
