"""Distributes the training samples among the workers."""

import numpy as np
import numpy.typing as npt

from syncline.datasets.streams import Purpose, stream

Indices = npt.NDArray[np.int64]


class WorkerShare:
    """One worker's share of the training set and its order.

    A seeded permutation of all samples is partitioned among the workers: every sample belongs to exactly one of them,
    and shares differ by at most one sample. The share is reshuffled in each worker epoch; batches are consecutive
    parts of the endless sequence of epochs, so all are full and a sample occurs exactly once in a worker epoch.

    Args:
        num_samples: size of the training set.
        num_workers: >= 1.
        worker: 0 .. num_workers - 1.
        batch_size: >= 1; may exceed the share, a batch then spans several epochs.
        seed: >= 0, of the run.

    Raises:
        ValueError: fewer samples than workers, or an argument out of range.
    """

    def __init__(self, num_samples: int, num_workers: int, worker: int, batch_size: int, seed: int) -> None:
        if num_workers < 1 or not 0 <= worker < num_workers:
            raise ValueError(f"worker must be 0..num_workers-1, got worker={worker}, num_workers={num_workers}")
        if num_samples < num_workers:
            raise ValueError(f"{num_samples} training samples cannot be shared among {num_workers} workers")
        if batch_size < 1:
            raise ValueError(f"batch_size must be >= 1, got {batch_size}")
        self.worker = worker
        self.batch_size = batch_size
        self.seed = seed
        everything = stream(Purpose.SPLIT, 0, 0, seed).permutation(num_samples)
        self.samples: Indices = everything[worker::num_workers].copy()  # int64 [share], this worker's samples
        self._epochs: dict[int, Indices] = {}  # the latest two: the current one and the next

    def batch(self, iteration: int) -> Indices:
        """Sample numbers int64 [batch_size] of the worker's iteration 0, 1, ...; always the same for an iteration."""
        if iteration < 0:
            raise ValueError(f"iteration must be >= 0, got {iteration}")
        epoch, offset = divmod(iteration * self.batch_size, len(self.samples))
        end = offset + self.batch_size
        if end <= len(self.samples):
            return self._epoch(epoch)[offset:end].copy()
        last = epoch + (end - 1) // len(self.samples)
        return np.concatenate([self._epoch(e) for e in range(epoch, last + 1)])[offset:end]

    def _epoch(self, epoch: int) -> Indices:
        order = self._epochs.get(epoch)
        if order is None:
            order = stream(Purpose.SHUFFLE, self.worker, epoch, self.seed).permutation(self.samples)
            if len(self._epochs) == 2:
                del self._epochs[next(iter(self._epochs))]
            self._epochs[epoch] = order
        return order
