"""The moving average of the weights that is evaluated in their place."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from syncline.learning.optimizer import Averaged
from syncline.learning.sgd import Sgd


def moved_to(optimizer: Averaged, weights: Tensor, target: Tensor) -> None:
    """A step of plain SGD with a known result: rate 1, gradient weights - target."""
    optimizer.step(weights, weights - target, 1.0, out=weights)


def test_by_hand() -> None:
    """Decays 2/11, 3/12 and then the limit of 0.3, where 4/13 would be more."""
    optimizer, weights = Averaged(Sgd(0, 0), 0.3), torch.tensor([1.0], dtype=torch.float64)
    assert optimizer.evaluated(weights) is weights, "before the first update"
    expected = 1.0
    for target, decay in ((3.0, 2 / 11), (-2.0, 3 / 12), (5.0, 0.3), (5.0, 0.3)):
        moved_to(optimizer, weights, torch.tensor([target], dtype=torch.float64))
        expected = decay * expected + (1 - decay) * target
        assert optimizer.evaluated(weights).item() == pytest.approx(expected, rel=1e-12)
        assert weights.item() == pytest.approx(target, rel=1e-12)


@given(st.floats(0.01, 0.9999), st.integers(1, 15), st.booleans())
def test_the_mean_of_the_replicas_averages_is_the_average_of_their_mean(
    decay: float, updates: int, joins_first: bool
) -> None:
    """Four replicas with an optimizer each, joined in changing pairs: their averages need no exchange."""
    generator = torch.Generator().manual_seed(updates)
    replicas = [torch.randn(6, generator=generator, dtype=torch.float64) for _ in range(4)]
    optimizers = [Averaged(Sgd(0.9, 0.01), decay) for _ in replicas]
    average = sum(replicas) / 4
    for update in range(1, updates + 1):
        pairs = ((0, 1), (2, 3)) if update % 2 else ((0, 2), (1, 3))
        for join in (True, False) if joins_first else (False, True):
            if join:
                for one, other in pairs:
                    mean = (replicas[one] + replicas[other]) / 2
                    replicas[one].copy_(mean)
                    replicas[other].copy_(mean)
            else:
                for replica, optimizer in zip(replicas, optimizers, strict=True):
                    gradient = torch.randn(6, generator=generator, dtype=torch.float64)
                    optimizer.step(replica, gradient, 0.1, out=replica)
        allowed = min(decay, (1 + update) / (10 + update))
        average = allowed * average + (1 - allowed) * sum(replicas) / 4
        evaluated = [optimizer.evaluated(replica) for replica, optimizer in zip(replicas, optimizers, strict=True)]
        torch.testing.assert_close(sum(evaluated) / 4, average, rtol=1e-10, atol=1e-12)
