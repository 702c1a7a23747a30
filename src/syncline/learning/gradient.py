"""The one gradient function, which every engine calls, and its arguments.

Shape legend: n parameters, m float buffer elements.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from syncline.datasets.batch_source import Batch, BatchSource
from syncline.datasets.sharding import BatchOrder
from syncline.datasets.streams import Purpose, seed_global_generators, stream
from syncline.learning.cuda_graphs import CudaGraphs
from syncline.learning.flat import FlatModule
from syncline.learning.task import Task, num_counted


@dataclass(frozen=True, slots=True)
class MiniBatch:
    """The data of one gradient."""

    samples: Batch
    key: tuple[int, int, int]  # worker, iteration, seed of the run
    indices: npt.NDArray[np.int64] | None = None  # of the samples among those for training; None: not known

    def seed_generators(self) -> None:
        """Seed the global generators, from which a network or a loss draws random numbers (dropout)."""
        seed_global_generators(int(stream(Purpose.NOISE, *self.key).integers(2**63)))


class WorkerBatches:
    """One worker's mini-batches; an iteration always has the same one.

    Args:
        in_sequence: each iteration is followed by the next one, whose batch is prepared meanwhile; else by any.
    """

    def __init__(self, source: BatchSource, share: BatchOrder, in_sequence: bool = True) -> None:
        self.share = share
        self._in_sequence = in_sequence
        self._source = source
        self._prefetch = getattr(source, "prefetch", None)

    def take(self, iteration: int) -> MiniBatch:
        indices = self.share.batch(iteration)
        samples = self._source.take(indices, self._generator(iteration))
        if self._in_sequence:  # decoded while this gradient is computed
            self.prefetch(iteration + 1)
        return MiniBatch(samples, self._key(iteration), indices)

    def prefetch(self, iteration: int) -> None:
        """Start to decode the photographs of an iteration that will be taken soon."""
        if self._prefetch is not None:
            self._prefetch(self.share.batch(iteration), self._generator(iteration))

    def _generator(self, iteration: int) -> np.random.Generator | None:
        return stream(Purpose.AUGMENT, *self._key(iteration)) if self._source.is_random else None

    def _key(self, iteration: int) -> tuple[int, int, int]:
        return self.share.worker, iteration, self.share.seed


@dataclass(frozen=True, slots=True)
class GradientFunction:
    """(weights, buffers, batch) -> (loss, gradient, buffers) of the task's mean loss, on flat vectors.

    The returned gradient [n] and buffers [m] belong to the module; the next call overwrites them.
    """

    flat: FlatModule
    task: Task
    clip_norm: float | None = None  # upper bound of the L2 norm, to which larger gradients are scaled
    precision: torch.dtype = torch.float32  # of the forward and backward pass; determines the memory format of images
    pieces: int = 1  # of a mini-batch, computed one after another: less memory; batch norm sees each by itself
    in_graphs: bool = False  # by CUDA graphs: model and task must be such that CudaGraphs can record them
    _passes: Callable[[Batch], Tensor] = field(init=False)

    def __post_init__(self) -> None:
        assert not (self.in_graphs and (self.flat.is_random or self.pieces > 1))
        object.__setattr__(self, "_passes", CudaGraphs(self._pass) if self.in_graphs else self._pass)

    def __call__(self, weights: list[Tensor], buffers: Tensor, batch: MiniBatch) -> tuple[float, Tensor, Tensor]:
        flat = self.flat
        flat.load(weights, buffers)
        if flat.is_random:
            batch.seed_generators()
        loss = self._passes(batch.samples).item()
        if not math.isfinite(loss) and batch.indices is not None:
            check_finite(batch.samples, "training", batch.indices.tolist())
        return loss, flat.gradient, flat.buffers

    def _pass(self, samples: Batch) -> Tensor:
        """Forward and backward at the weights that the module has; the loss."""
        self.flat.clear_gradient()
        if self.pieces == 1:
            loss = self._loss(samples)
            loss.backward()  # type: ignore[no-untyped-call]
            total = loss.detach()
        else:
            total = self.flat.gradient.new_zeros(())
            pieces, counted = min(self.pieces, len(samples[0])), num_counted(self.task, samples)
            for piece in zip(*(tensor.tensor_split(pieces) for tensor in samples), strict=True):
                count = num_counted(self.task, piece)
                if counted and not count:
                    continue
                loss = self._loss(piece) * (count / max(counted, 1))
                loss.backward()  # type: ignore[no-untyped-call]
                total += loss.detach()
        if self.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.flat.trained, self.clip_norm)
        return total

    def _loss(self, samples: Batch) -> Tensor:
        module = self.flat.module
        if self.precision == torch.float32:
            return self.task.loss(module, samples)
        samples = tuple(_channels_last(tensor) for tensor in samples)
        with torch.autocast(self.flat.gradient.device.type, self.precision):
            return self.task.loss(module, samples)


def check_finite(samples: Batch, part: str, indices: Sequence[int]) -> None:
    """Raises ValueError: one of these samples, with these numbers, holds something that is no finite number."""
    for column in samples:
        wrong = (~column.isfinite()).flatten(1).any(1) if column.ndim > 1 else ~column.isfinite()
        if bool(wrong.any()):
            place = int(wrong.nonzero()[0])
            values = column[place].flatten()
            found = float(values[~values.isfinite()][0])
            raise ValueError(f"{part} sample {indices[place]} of the data set holds {found}: data must be finite")


def _channels_last(tensor: Tensor) -> Tensor:
    """Images [B, C, H, W] in channels-last memory format, which is fast for 16-bit convolutions."""
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor
