"""Holds a model, a data set and a task of the user's own to what the engines rely on, by two gradients of one batch."""

import pickle
import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from syncline.learning.gradient import GradientFunction, MiniBatch, WorkerBatches


def probe(gradient: GradientFunction, batches: WorkerBatches) -> None:
    """Compute the first gradient of a worker twice; the module is left as it was.

    Raises:
        ValueError: the batch, the loss or the gradient differs the second time, or a global generator was drawn from.
            Any error of the user's code.
    """
    flat = gradient.flat
    weights, buffers, counters = flat.weights.clone(), flat.buffers.clone(), _counters(flat.module)
    first, again = batches.take(0), batches.take(0)
    if not _are_equal(first.samples, again.samples):
        raise ValueError(
            "the data set returns another sample for the same index: it must draw from the global generators of torch, "
            "NumPy or Python, which are seeded for each batch, or not at all"
        )
    before = _global_generators()
    loss, vector, _ = _computed(gradient, weights, buffers, first)
    vector = vector.clone()
    drawn = [name for name, state in _global_generators().items() if state != before[name]]
    if drawn:
        raise ValueError(
            f"the model or the loss draws from the global generator of {drawn[0]}, which no run could repeat: "
            "torch's is seeded for each gradient"
        )
    if not vector.any():
        raise ValueError("the first gradient is zero: the loss must depend on the model's parameters")
    loss_again, vector_again, _ = _computed(gradient, weights, buffers, again)
    if vector.device.type == "cpu" and not (_same(loss, loss_again) and _same_bits(vector, vector_again)):
        raise ValueError(
            f"the gradient of one batch differs when it is computed again (loss {loss:.7g} and {loss_again:.7g}): "
            "the model must keep no state but its parameters and buffers, and draw from torch's global generator only"
        )
    changed = [name for name, count in _counters(flat.module).items() if not torch.equal(count, counters[name])]
    if changed:
        raise ValueError(
            f"the model changes its buffer {changed[0]}, of whole numbers: only buffers of real numbers are sent and "
            "kept in checkpoints"
        )
    flat.load([weights], buffers)


def _counters(module: nn.Module) -> dict[str, Tensor]:
    """Copies of the buffers that are no real numbers, but batch norm's count of batches where it is not read."""
    unread = {
        f"{name}.num_batches_tracked".lstrip(".")
        for name, part in module.named_modules()
        if isinstance(part, nn.modules.batchnorm._NormBase) and part.momentum is not None
    }
    buffers = module.named_buffers()
    return {name: each.clone() for name, each in buffers if not each.is_floating_point() and name not in unread}


def _computed(
    gradient: GradientFunction, weights: Tensor, buffers: Tensor, batch: MiniBatch
) -> tuple[float, Tensor, Tensor]:
    found = gradient([weights], buffers, batch)
    flat = gradient.flat
    for parameter, view in zip(flat.trained, flat.gradient_tensors, strict=True):
        if parameter.grad is None or parameter.grad.data_ptr() != view.data_ptr():
            raise ValueError(
                "gradients must be dense, and the model must not replace them (sparse=False, no zero_grad)"
            )
    return found


def _global_generators() -> dict[str, Any]:
    return {"NumPy": pickle.dumps(np.random.get_state()), "Python": random.getstate()}


def _are_equal(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> bool:
    return len(one) == len(other) and all(_same_bits(a, b) for a, b in zip(one, other, strict=True))


def _same_bits(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())


def _same(one: float, other: float) -> bool:
    return one == other or (one != one and other != other)
