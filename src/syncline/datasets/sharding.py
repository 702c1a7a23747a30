"""Distributes the training samples among the workers (`dataset.sharing`).

partition   each worker has a share of the samples and passes through it in its own order (`WorkerShare`): on unequal
            workers the samples of a fast one are seen more often; shares may differ in their classes (`class_shares`)
shared      all workers take batches from one order of all samples, which is that of a single worker: through a server
            whoever begins a gradient takes the next batch (`SharedCursor`); in a collective, whose workers make the
            same steps, worker p of P takes batch t P + p of the order at step t (`Turns`)
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from syncline.datasets.streams import Purpose, stream

Indices = npt.NDArray[np.int64]


class BatchOrder(Protocol):
    """A worker's batches."""

    worker: int  # with the iteration and the seed: the key of a batch's random numbers
    seed: int

    def batch(self, iteration: int) -> Indices:
        """Sample numbers int64 [batch_size] of iteration 0, 1, ...; always the same for an iteration."""
        ...


class WorkerShare:
    """One worker's share of the training set and its order.

    A seeded permutation of all samples is partitioned among the workers: every sample belongs to exactly one of them,
    and shares differ by at most one sample. The share is reshuffled in each worker epoch; batches are consecutive
    parts of the endless sequence of epochs, so all are full and a sample occurs exactly once in a worker epoch.

    Args:
        num_samples: size of the training set, >= num_workers.
        num_workers: >= 1.
        worker: 0 .. num_workers - 1.
        batch_size: >= 1; may exceed the share, a batch then spans several epochs.
        seed: >= 0, of the run.
        samples: int64 [share] of this worker; None: its part of that permutation.
    """

    def __init__(
        self,
        num_samples: int,
        num_workers: int,
        worker: int,
        batch_size: int,
        seed: int,
        samples: Indices | None = None,
    ) -> None:
        assert 0 <= worker < num_workers <= num_samples
        self.worker, self.batch_size, self.seed = worker, batch_size, seed
        if samples is None:
            samples = stream(Purpose.SPLIT, 0, 0, seed).permutation(num_samples)[worker::num_workers].copy()
        self.samples: Indices = samples  # int64 [share], this worker's samples
        self._epochs: dict[int, Indices] = {}  # the latest two: the current one and the next

    def batch(self, iteration: int) -> Indices:
        """Sample numbers int64 [batch_size] of the worker's iteration 0, 1, ...; always the same for an iteration."""
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


def class_shares(labels: Indices, num_workers: int, concentration: float, seed: int) -> list[Indices]:
    """Each worker's samples where workers prefer classes: every sample belongs to one, shares differ by at most one.

    Worker after worker draws its preferences from a symmetric Dirichlet distribution and fills its share by them from
    what is left of each class; of classes that it does not prefer only once those are used up.

    Args:
        labels: int64 [num_samples].
        concentration: alpha of each class, > 0: below 1 most of a share is of few classes, from 100 on all are alike.
        seed: >= 0, of the run.

    Source: Hsu, Qi and Brown 2019, "Measuring the effects of non-identical data distribution", section 3; there alpha
    is divided among the classes.
    """
    generator = stream(Purpose.SPLIT, 1, 0, seed)
    classes, numbers = np.unique(labels, return_inverse=True)
    order = generator.permutation(len(labels))
    members = [order[numbers[order] == number] for number in range(len(classes))]
    left = np.array([len(each) for each in members])
    shares = []
    for worker in range(num_workers):
        preferences = generator.dirichlet(np.full(len(classes), concentration))
        share: list[Indices] = []
        need = (len(labels) - worker + num_workers - 1) // num_workers
        while need:
            wanted = np.where(left > 0, preferences, 0.0)
            wanted = wanted if wanted.sum() > 0 else left.astype(float)
            counts = np.minimum(generator.multinomial(need, wanted / wanted.sum()), left)
            share += [each[rest - count : rest] for each, count, rest in zip(members, counts, left, strict=True)]
            left = left - counts
            need -= int(counts.sum())
        shares.append(np.concatenate(share))
    return shares


class Turns:
    """The batches of a worker of a collective in an order that all share: at each step all take one, in order of rank.

    Args:
        order: of all samples.
        num_workers: >= 1.
        worker: 0 .. num_workers - 1.
    """

    def __init__(self, order: WorkerShare, num_workers: int, worker: int) -> None:
        self.worker, self.seed = worker, order.seed
        self._order, self._num_workers = order, num_workers

    def batch(self, iteration: int) -> Indices:
        """Sample numbers int64 [batch_size] of the worker's step 0, 1, ...; always the same for a step."""
        return self._order.batch(iteration * self._num_workers + self.worker)


class SharedCursor:
    """The place in an order that all workers share: whoever begins a gradient takes the next batch.

    A worker whose gradient is cancelled keeps its batch for the next one. So each batch of the order is computed once.
    """

    def __init__(self, num_workers: int) -> None:
        self._next = 0  # batch that no worker has taken
        self._held: list[int | None] = [None] * num_workers  # batch of the gradient that a worker has begun

    def begin(self, worker: int) -> int:
        """The batch of the gradient that the worker begins."""
        held = self._held[worker]
        if held is None:
            held = self._held[worker] = self._next
            self._next += 1
        return held

    def finish(self, worker: int) -> int:
        """The batch of the gradient that the worker has begun, and finishes now."""
        held, self._held[worker] = self._held[worker], None
        assert held is not None, f"worker {worker} has begun no gradient"
        return held

    def state_dict(self) -> dict[str, Any]:
        """Plain types."""
        return {"next": self._next, "held": list(self._held)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` gave."""
        self._next, self._held = state["next"], list(state["held"])
