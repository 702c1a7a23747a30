"""Rules for what a shard makes of the pushes of an update before their mean is the gradient of the optimizer's step.

Shape legend: n elements of the shard's block. tau: the staleness of a push, updates of the block since its worker was
sent it. All rules here but `Elastic` leave a push with tau = 0 as it is. They multiply and divide, so that a gradient
that no pass has reached (layout.py) stays one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from syncline.learning.field_state import FieldState


@dataclass(eq=False, slots=True)
class AppliedPush:
    """A push of an update, as a rule sees it."""

    gradient: Tensor  # [n], or what takes its place after local steps; the rule may change it
    buffers: Tensor  # [m] of the worker, whose mean becomes that of the shard
    worker: int
    staleness: int  # tau
    steps: int  # mini-batches
    samples: int
    weights: Tensor | None = None  # [n] that it was computed from, not to be changed; None unless the rule needs them


class UpdateRule(FieldState):
    """The pushes as they are."""

    needs_weights = False  # then the shard keeps the weights that each push is computed from

    def __call__(self, weights: Tensor, pushes: Sequence[AppliedPush], rate: float) -> None:
        """Change the gradients of the pushes in place.

        Args:
            weights: the current ones [n], not to be changed.
            pushes: of the update; at least one.
            rate: of the step that follows.
        """


@dataclass(eq=False, slots=True)
class StalenessAware(UpdateRule):
    """A stale gradient counts less:

        g <- g / max(1, tau + shift)^power

    Sources: Zhang et al. 2016, "Staleness-aware async-SGD", equation 6 (shift 0, power 1: the rate over tau); Nguyen et
    al. 2022, "Federated learning with buffered asynchronous aggregation", section 5 (shift 1, power 1/2).
    """

    shift: int
    power: float

    def __call__(self, weights: Tensor, pushes: Sequence[AppliedPush], rate: float) -> None:
        for push in pushes:
            push.gradient.mul_(max(1, push.staleness + self.shift) ** -self.power)


@dataclass(eq=False, slots=True)
class DelayCompensated(UpdateRule):
    """A stale gradient is corrected by what the weights have moved since, with g^2 for the diagonal of the Hessian:

        g <- g + l g^2 (w - w_begun)        l = strength, or adaptive: strength / sqrt(s + eps)
                                            s <- decay s + (1 - decay) g^2 at each push

    Source: Zheng et al. 2017, "Asynchronous SGD with delay compensation", equations 10 and 13 (DC-ASGD-c and -a).
    """

    strength: float
    adaptive: bool
    decay: float
    eps: float = 1e-7
    _square: Tensor | None = field(default=None, init=False)  # s [n]

    needs_weights = True

    def __call__(self, weights: Tensor, pushes: Sequence[AppliedPush], rate: float) -> None:
        for push in pushes:
            assert push.weights is not None
            gradient = push.gradient
            strength: float | Tensor = self.strength
            if self.adaptive:
                if self._square is None:
                    self._square = torch.zeros_like(weights)
                self._square.mul_(self.decay).addcmul_(gradient, gradient, value=1 - self.decay)
                strength = (self._square + self.eps).rsqrt_().mul_(self.strength)
            gradient.mul_((weights - push.weights).mul_(gradient).mul_(strength).add_(1.0))


@dataclass(eq=False, slots=True)
class GapAware(UpdateRule):
    """Each element of a stale gradient is divided by how many usual steps its weight has moved since:

        g <- g / (1 + |w - w_begun| / c)    c: moving average of |rate g| over all pushes, this one among them

    Source: Barkai et al. 2020, "Gap-aware mitigation of gradient staleness", section 4. The decay of c is ours.
    """

    decay: float
    _step: Tensor | None = field(default=None, init=False)  # sum of (1 - decay) decay^age |rate g| [n]
    _pushes: int = field(default=0, init=False)

    needs_weights = True

    def __call__(self, weights: Tensor, pushes: Sequence[AppliedPush], rate: float) -> None:
        for push in pushes:
            assert push.weights is not None
            if self._step is None:
                self._step = torch.zeros_like(weights)
            self._step.lerp_(push.gradient.abs().mul_(rate), 1 - self.decay)
            self._pushes += 1
            usual = (self._step / (1 - self.decay**self._pushes)).clamp_min_(torch.finfo(weights.dtype).tiny)
            push.gradient.div_((weights - push.weights).abs_().div_(usual).add_(1.0))


@dataclass(eq=False, slots=True)
class Elastic(UpdateRule):
    """The shard's weights are drawn to those that the worker has, x = w_begun less what it pushes:

        g <- strength (w - x)

    Source: Zhang, Choromanska and LeCun 2015, "Deep learning with elastic averaging SGD", algorithm 1, where the
    strength is alpha; with all workers in one update it is beta = workers x alpha (equation 6).
    """

    strength: float

    needs_weights = True

    def __call__(self, weights: Tensor, pushes: Sequence[AppliedPush], rate: float) -> None:
        for push in pushes:
            assert push.weights is not None
            push.gradient.add_(weights - push.weights).mul_(self.strength)


RULES: dict[str, Callable[..., UpdateRule]] = {
    "mean": UpdateRule,
    "staleness_aware": StalenessAware,
    "delay_compensated": DelayCompensated,
    "gap_aware": GapAware,
    "elastic": Elastic,
}
