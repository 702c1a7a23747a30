"""Holds a model, a data set and a task of the user's own to what the engines rely on, by two gradients of one batch."""

from typing import Any

import torch
from torch import Tensor, nn

from syncline.learning.flat import FlatModule
from syncline.learning.gradient import GradientFunction, WorkerBatches


def probe(flat: FlatModule, gradient: GradientFunction, batches: WorkerBatches, task: object) -> None:
    """Compute the first gradient of a worker twice, on a model that is built for it.

    Args:
        flat: that of the run, which stays as it is.
        gradient: of a model that was built again, and is not used after this.
        task: that of `gradient`, as the user made it.

    Raises:
        ValueError: the model was built differently, or the batch, the loss or the gradient differs the second time, or
            a pass changes what is not sent. Any error of the user's code.
    """
    twin = gradient.flat
    built, rebuilt = (_tensors(each) for each in (flat, twin))
    for name in {**built, **rebuilt}:
        if name not in built or name not in rebuilt or not _same_bits(built[name], rebuilt[name]):
            raise ValueError(
                f"{name} differs when the model is built again: it must draw from the global generators of torch, "
                "NumPy or Python, which are seeded before, or not at all"
            )
    weights, buffers = twin.weights.clone(), twin.buffers.clone()
    counters, frozen = _counters(twin), _frozen(twin)
    first, again = batches.take(0), batches.take(0)
    if not _are_equal(first.samples, again.samples):
        raise ValueError(
            "the data set returns another sample for the same index: it must draw from the global generators of torch, "
            "NumPy or Python, which are seeded for each batch, or not at all"
        )
    loss, vector, _ = gradient([weights], buffers, first)
    vector, numbers = vector.clone(), _numbers(twin.module, task)
    twin.check()
    if changed := [
        place.name for place in twin.layout.places if not _same_bits(place.of(weights), place.of(twin.weights))
    ]:
        raise ValueError(f"a pass changes the parameter {changed[0]}, which optimizers alone must change")
    if changed := [name for name, tensor in _frozen(twin).items() if not _same_bits(tensor, frozen[name])]:
        raise ValueError(
            f"a pass changes {changed[0]}, a parameter that is not trained, which is neither sent nor kept in "
            "checkpoints: make it a buffer"
        )
    if changed := [name for name, count in _counters(twin).items() if not torch.equal(count, counters[name])]:
        raise ValueError(
            f"the model changes its buffer {changed[0]}, of whole numbers: only buffers of real numbers are sent and "
            "kept in checkpoints"
        )
    if not vector.any():
        raise ValueError("the first gradient is zero: the loss must depend on the model's parameters")
    loss_again, vector_again, _ = gradient([weights], buffers, again)
    if changed := [name for name, value in _numbers(twin.module, task).items() if numbers.get(name) != value]:
        raise ValueError(
            f"each pass changes the attribute {changed[0]}, which is neither sent nor kept in checkpoints: make it a "
            "buffer of real numbers"
        )
    are_equal = _same_bits(vector, vector_again) and (loss == loss_again or (loss != loss and loss_again != loss_again))
    if vector.device.type == "cpu" and not are_equal:
        raise ValueError(
            f"the gradient of one batch differs when it is computed again (loss {loss:.7g} and {loss_again:.7g}): "
            "model and loss must keep no state but parameters and buffers, and draw from the global generators of "
            "torch, NumPy or Python, which are seeded for each gradient"
        )


def _tensors(flat: FlatModule) -> dict[str, Tensor]:
    found: dict[str, Tensor] = flat.named("named_parameters") | flat.named("named_buffers")
    return found


def _frozen(flat: FlatModule) -> dict[str, Tensor]:
    """Copies of the parameters that are not trained."""
    parameters = flat.named("named_parameters").items()
    return {name: each.detach().clone() for name, each in parameters if not each.requires_grad}


def _counters(flat: FlatModule) -> dict[str, Tensor]:
    """Copies of the buffers that are no real numbers, but batch norm's count of batches where it is not read."""
    unread = {
        f"{name}.num_batches_tracked".lstrip(".")
        for name, part in flat.named("named_modules").items()
        if isinstance(part, nn.modules.batchnorm._NormBase) and part.momentum is not None
    }
    buffers = flat.named("named_buffers").items()
    return {name: each.clone() for name, each in buffers if not each.is_floating_point() and name not in unread}


def _numbers(module: nn.Module, task: object) -> dict[str, float]:
    """The numbers among the attributes of the model's parts and of the task."""
    holders: dict[str, Any] = {**dict(module.named_modules()), "task": task}
    return {
        f"{prefix}.{name}".lstrip("."): value
        for prefix, holder in holders.items()
        for name, value in getattr(holder, "__dict__", {}).items()
        if type(value) in (int, float)
    }


def _are_equal(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> bool:
    return len(one) == len(other) and all(_same_bits(a, b) for a, b in zip(one, other, strict=True))


def _same_bits(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())
