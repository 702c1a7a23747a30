"""How far a strongly convex loss is from its minimum after J updates: the paper's bounds, as closed forms.

    K-sync, K-batch-sync      e_J <= floor + (1 - eta c)^J (e_0 - floor),    floor = eta L s^2 / (2 c K)
    K-async, K-batch-async    the same with c g for c, g = 1 - gamma + p_0 / 2

e is the expected distance from the minimum, eta the rate, L and c how strongly the loss is at most and at least curved,
s^2 the variance of a mini-batch's gradient. Of stale gradients, gamma bounds how far they are from fresh ones (0: not
at all), and p_0 is the least probability that a gradient is fresh.

Source: adasync.txt, section 4.2.1: Lemma 7 (Bottou, Curtis and Nocedal 2016), Theorem 3, Remark 4. The formulas are
lost in our text; these are the ones that follow from its proofs (appendix C.2 and C.3).
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StronglyConvex:
    """A problem and the learning rate."""

    first_error: float  # e_0, > 0
    rate: float  # eta, > 0
    smoothness: float  # L >= c
    convexity: float  # c, > 0; eta c < 1
    variance: float  # s^2 of a mini-batch's gradient, >= 0

    def __post_init__(self) -> None:
        if not (
            self.first_error > 0 and self.rate > 0 and 0 < self.convexity <= self.smoothness and self.variance >= 0
        ):
            raise ValueError(f"first_error, rate and convexity must be > 0, smoothness >= convexity; got {self}")
        if not self.rate * self.convexity < 1:
            raise ValueError(f"rate * convexity must be < 1, got {self.rate * self.convexity:g}")

    def floor(self, k: int, progress: float = 1.0) -> float:
        """The error that remains after any number of updates of K gradients; `progress`: g, 1 for fresh gradients."""
        return self.rate * self.smoothness * self.variance / (2.0 * self.convexity * progress * k)

    def error(self, k: int, updates: float, progress: float = 1.0) -> float:
        """The bound on e_J for J = updates >= 0."""
        floor = self.floor(k, progress)
        left = math.pow(1.0 - self.rate * self.convexity * progress, updates)
        return floor + left * (self.first_error - floor)

    def updates_to(self, multiple: float, k: int, progress: float = 1.0) -> float:
        """J, not rounded, at which the bound is `multiple` > 1 times its floor; 0 if it begins below that."""
        floor = self.floor(k, progress)
        if self.first_error <= multiple * floor:
            return 0.0
        left = (multiple - 1.0) * floor / (self.first_error - floor)
        return math.log(left) / math.log1p(-self.rate * self.convexity * progress)


def stale_progress(gamma: float, fresh: float) -> float:
    """g = 1 - gamma + p_0 / 2: the guaranteed share of a fresh gradient's descent for a stale one.

    Args:
        gamma: of the staleness bound (equation 19), 0 .. 1.
        fresh: p_0, 0 .. 1; at least 1 / P for exponential run times (Lemma 6).

    Raises:
        ValueError: an argument out of range, or g <= 0.
    """
    progress = 1.0 - gamma + fresh / 2.0
    if not (0 <= gamma <= 1 and 0 <= fresh <= 1 and progress > 0):
        raise ValueError(f"stale_progress: gamma and fresh must be in 0 .. 1, got {gamma} and {fresh}")
    return progress
