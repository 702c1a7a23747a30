"""Evaluation on the test set, also of several replicas."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from syncline.datasets.batch_source import BatchSource
from syncline.datasets.streams import seed_global_generators
from syncline.learning.flat import FlatModule
from syncline.learning.gossip import mean_of
from syncline.learning.gradient import check_finite
from syncline.learning.task import Task

SEED = 0  # of random numbers that a network draws during evaluation


class Evaluator:
    """Evaluates weights on the test set; the training mode of the module is restored afterwards."""

    def __init__(self, source: BatchSource, task: Task, flat: FlatModule) -> None:
        self._source, self._task, self._flat = source, task, flat
        self._has_looked = False  # at the data, since a metric was not finite

    @torch.no_grad()
    def __call__(self, weights: list[Tensor], buffers: Tensor) -> dict[str, float]:
        """The task's METRICS for these weights (blocks, [n] in total) and buffers [m].

        Raises:
            ValueError: the model has changed (FlatModule.check), or a metric is not finite because a sample is not.
        """
        flat = self._flat
        flat.load(weights, buffers)
        flat.check()
        if flat.is_random:
            seed_global_generators(SEED)
        flat.train(False)
        metrics = self._task.evaluate(flat.module, self._source)
        flat.train()
        if not self._has_looked and not all(map(math.isfinite, metrics.values())):
            self._look_at_data()
        return metrics

    def _look_at_data(self) -> None:
        """Raises ValueError: a test sample is not finite."""
        self._has_looked, begin = True, 0
        for batch in self._source.test():
            check_finite(batch, "test", range(begin, begin + len(batch[0])))
            begin += len(batch[0])


def final_state(weights: Tensor, evaluated: Tensor, buffers: Tensor, push_sum_weight: float = 1.0) -> dict[str, Tensor]:
    """A part of the parameters as stored in files: the weights, and the average that is evaluated in their place.

    Of a replica also its push-sum weight, if that is not 1.
    """
    state = {"weights": weights.cpu(), "buffers": buffers.cpu()}
    if evaluated is not weights:
        state["evaluated"] = evaluated.cpu()
    if push_sum_weight != 1.0:
        state["push_sum_weight"] = torch.tensor(push_sum_weight, dtype=torch.float64)
    return state


def are_finite(weights: Sequence[Tensor]) -> bool:
    """Whether all parameters are finite."""
    return all(bool(block.isfinite().all()) for block in weights)


def evaluated_parts(
    parts: Sequence[Mapping[str, Tensor]], is_mean: bool | None
) -> tuple[list[Tensor], Tensor, float | None]:
    """What is evaluated of the states of all shards, or of all replicas, as files hold them.

    Args:
        is_mean: of replicas, whether their mean is evaluated, else the first one; None: of shards.

    Returns:
        Weights in blocks, buffers [m], and the divergence of replicas.
    """
    weights, buffers = [part["weights"] for part in parts], [part["buffers"] for part in parts]
    evaluated = [part.get("evaluated", part["weights"]) for part in parts]
    if is_mean is None:
        return evaluated, buffers[0], None
    push_sum = [float(part.get("push_sum_weight", 1.0)) for part in parts]
    one, its_buffers, divergence = evaluated_replica(weights, evaluated, buffers, is_mean, push_sum)
    return [one], its_buffers, divergence


def evaluated_replica(
    weights: Sequence[Tensor],
    evaluated: Sequence[Tensor],
    buffers: Sequence[Tensor],
    is_mean: bool,
    push_sum: Sequence[float],
) -> tuple[Tensor, Tensor, float]:
    """What is evaluated of replicas, weights [n] and buffers [m], and the divergence, max over i of ||w_i - mean||_2.

    The replicas are those after a complete step, which ends with each worker's own step for `average=before_forward`,
    and with the averaging of groups for `after_step`.

    Args:
        evaluated: of each replica: its weights, or their moving average.
        is_mean: their mean is evaluated, else the first one.
        push_sum: the weight of each in the mean.
    """
    mean = mean_of(weights, push_sum)
    distances = [torch.linalg.vector_norm(replica - mean, dtype=torch.float64) for replica in weights]
    divergence = max(distance.item() for distance in distances)
    if not is_mean:
        return evaluated[0], buffers[0], divergence
    if any(average is not own for average, own in zip(evaluated, weights, strict=True)):
        mean = mean_of(evaluated, push_sum)
    return mean, mean_of(buffers, push_sum), divergence
