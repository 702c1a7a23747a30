"""Push-sum: the mean of all replicas is kept, also where workers do not receive from as many as they send to.

Worker j sends equal shares of its parameters x_j and of its push-sum weight w_j, at first 1, to the d_j workers that
receive from it, itself among them (column-stochastic mixing):

    x_i <- sum over j of x_j / d_j        w_i <- sum over j of w_j / d_j        z_i = x_i / w_i

Gradients are computed at z_i, and the optimizer's step is made on x_i. The replicas here are z_i:

    z_i <- mean of the z_j that it receives, with weights w_j / d_j             z_i <- z_i + step / w_i

The mean of all x_i is that of all z_i with weights w_i. All workers know the graphs, and so all w_i: none is sent.
Where each worker receives from as many as it sends to, they stay 1 in every bit.

Shape legend: n parameters.

Source: Assran et al. 2019, "Stochastic gradient push for distributed deep learning", algorithm 1.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from syncline.learning.optimizer import Optimizer
from syncline.strategies.collective import Averaging, num_shares


class PushSum:
    """The push-sum weights of so many replicas."""

    def __init__(self, num_replicas: int) -> None:
        self.weights = [1.0] * num_replicas  # w_i

    def advance(self, turn: Sequence[Averaging]) -> list[list[float]]:
        """All average, as this turn says. Returns the weights of each mean, of its members."""
        shares = num_shares(turn)
        received = [[self.weights[member] / shares[member] for member in members] for members, _ in turn]
        weights = list(self.weights)
        for (members, receivers), (first, *others) in zip(turn, received, strict=True):
            # Their sum, by multiples of the first: so 1 stays 1, although 1 / d is rounded.
            total = self.weights[members[0]] * (1.0 + sum(other / first for other in others))
            for worker in receivers:
                weights[worker] = total / shares[members[0]]
        self.weights = weights
        return received

    def state_dict(self) -> dict[str, Tensor]:
        """The weights of all."""
        return {"weights": torch.tensor(self.weights, dtype=torch.float64)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue from what `state_dict` gave; from an empty one as at first."""
        self.weights = state["weights"].tolist() if state else [1.0] * len(self.weights)


def step_replica(
    optimizer: Optimizer, weights: Tensor, gradient: Tensor, rate: float, push_sum_weight: float = 1.0
) -> None:
    """Make the optimizer's step on x_i, of which these weights are z_i [n], in place."""
    if push_sum_weight == 1.0:
        optimizer.step(weights, gradient, rate, out=weights)
        return
    before = weights.clone()
    optimizer.step(weights, gradient, rate, out=weights)
    weights.lerp_(before, 1.0 - 1.0 / push_sum_weight)
