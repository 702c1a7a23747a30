"""Metrics on the test set, and what of several replicas is evaluated."""

from collections.abc import Sequence

import torch
from torch import Tensor

from syncline.datasets.batch_source import BatchSource
from syncline.learning.flat import FlatModule
from syncline.learning.task import Task

SEED = 0  # of what a network leaves to chance while it is evaluated: always the same


class Evaluator:
    """The test set, ready to be run through the module; leaves the module's training mode as it was."""

    def __init__(self, source: BatchSource, task: Task, flat: FlatModule) -> None:
        self._source = source
        self._task = task
        self._flat = flat

    @torch.no_grad()
    def __call__(self, weights: list[Tensor], buffers: Tensor) -> dict[str, float]:
        """The task's METRICS for these weights (blocks, [n] in all) and buffers [m]."""
        self._flat.load(weights, buffers)
        module = self._flat.module
        if self._flat.is_random:
            torch.manual_seed(SEED)
        module.eval()
        metrics = self._task.evaluate(module, self._source)
        module.train()
        return metrics


def final_state(weights: Tensor, evaluated: Tensor, buffers: Tensor) -> dict[str, Tensor]:
    """A part of the parameters as files hold it; what is evaluated in place of the weights stands beside them."""
    state = {"weights": weights.cpu(), "buffers": buffers.cpu()}
    return state if evaluated is weights else state | {"evaluated": evaluated.cpu()}


def are_finite(weights: Sequence[Tensor]) -> bool:
    """No parameter is infinite or no number."""
    return all(bool(block.isfinite().all()) for block in weights)


def consensus(weights: Sequence[Tensor], buffers: Sequence[Tensor]) -> tuple[Tensor, Tensor, float]:
    """The mean of replicas: weights [n] and buffers [m], and the divergence, max over i of ||w_i - mean||_2.

    The replicas are what is there after a whole step: with `average=before_forward` each worker's own step is the last
    thing that happened to it, where after_step a group has averaged.
    """
    mean, mean_buffers = weights[0].clone(), buffers[0].clone()
    for other, other_buffers in zip(weights[1:], buffers[1:], strict=True):
        mean.add_(other)
        mean_buffers.add_(other_buffers)
    mean.div_(len(weights))
    mean_buffers.div_(len(weights))
    distances = [torch.linalg.vector_norm(replica - mean, dtype=torch.float64) for replica in weights]
    return mean, mean_buffers, max(distance.item() for distance in distances)
