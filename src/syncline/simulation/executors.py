"""Where the gradients of workers in virtual time are computed: when their events come, or ahead of them on more cores.

The loop decides when a gradient is finished in virtual time. Weights, mini-batch and random numbers are fixed from the
moment at which its worker begins it, so that it may be computed at any time in between, in any process: no event, draw
or bit depends on the executor.

Shape legend: n parameters, m float buffer elements.
"""

import gc
import mmap
import os
import signal
import time
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.context import BaseContext

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from syncline.learning.gradient import WorkerBatches
from syncline.learning.local_steps import LocalSteps
from syncline.processes import die_with

TRIAL_S = 0.5  # of computing in this process, after which it is known how long a round takes
# They may reach all processes of a terminal, or of a job.
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGHUP", "SIGUSR1", "SIGTERM") if hasattr(signal, name)]
WORTH_S = 1e-3  # a round that takes less is not worth the way to another process and back, which takes half of it

RoundResult = tuple[float, Tensor, Tensor]
"""Mean loss, what is pushed [n], buffers [m] after it; the tensors are valid until the executor's next call."""
WorkerArrays = Mapping[str, npt.NDArray[np.generic]]
"""What a worker keeps from round to round: the state of an optimizer of its own."""


@dataclass(frozen=True, eq=False, slots=True)
class Round:
    """What a worker has begun: the mini-batches of one push, from these weights on."""

    worker: int
    number: int  # of the push, by the worker's own count
    weights: Sequence[Tensor]  # blocks, [n] in total; neither they nor the buffers change until the result is taken
    buffers: Tensor  # [m]
    due: float  # virtual seconds; the order in which results are taken


class Serial:
    """Computes each round when its result is taken.

    Args:
        local: what each worker computes for a push.
        batches: of each worker.

    Attributes:
        in_vain: rounds that were cancelled when another process had them.
    """

    in_vain = 0

    def __init__(self, local: Sequence[LocalSteps], batches: Sequence[WorkerBatches]) -> None:
        self._local, self.batches = local, batches
        self._begun: dict[int, Round] = {}  # by worker

    def begin(self, begun: Round) -> None:
        """A worker has begun this round, after it has ended the one before."""
        self._begun[begun.worker] = begun

    def take(self, worker: int) -> RoundResult:
        """The result of what the worker has begun."""
        return self._compute(self._begun.pop(worker))

    def cancel(self, worker: int) -> None:
        """What the worker has begun is not needed, and changes nothing that the worker keeps."""
        del self._begun[worker]

    def close(self) -> None:
        """Nothing more is taken."""
        self._begun.clear()

    def _compute(self, begun: Round) -> RoundResult:
        worker = begun.worker
        return self._local[worker](list(begun.weights), begun.buffers, self.batches[worker], begun.number)


@dataclass(frozen=True, eq=False, slots=True)
class _Ahead:
    """A round that another process has."""

    begun: Round
    slot: int
    answer: "Future[tuple[float, WorkerArrays]]"


class Cores(Serial):
    """Computes rounds ahead of need in other processes, each with one thread, those first that are due first.

    The processes are forks of this one, so that the network and the data are there. Weights and results travel in
    shared memory. The first rounds are computed in this process; if they are too short, all are. So are those that are
    left when the processes are killed.

    Args:
        local, batches: as of `Serial`.
        processes: at least 1.
        ahead: rounds that the processes have at most; where some are cancelled, that many may be computed in vain.
    """

    def __init__(
        self, local: Sequence[LocalSteps], batches: Sequence[WorkerBatches], processes: int, ahead: int
    ) -> None:
        super().__init__(local, batches)
        self.in_vain = 0
        flat = local[0].gradient.flat
        self._size, self._num_buffers = flat.weights.numel(), flat.buffers.numel()
        self._processes, self._num_slots = processes, ahead
        self._spent_s, self._num_tried, self._is_tried = 0.0, 0, False
        self._pool: ProcessPoolExecutor | None = None
        self._slots = torch.empty(0)  # [ahead, n + m], shared: weights and buffers, then the result in their place
        self._free = list[int]()  # slots
        self._ahead = dict[int, _Ahead]()  # by worker
        self._cancelled = list[_Ahead]()

    def begin(self, begun: Round) -> None:
        super().begin(begun)
        self._submit()

    def take(self, worker: int) -> RoundResult:
        if not self._is_tried:
            return self._tried(worker)
        self._submit()
        while (ahead := self._ahead.get(worker)) is not None:
            wait([ahead.answer, *(other.answer for other in self._cancelled)], return_when=FIRST_COMPLETED)
            if not ahead.answer.done():
                self._submit()
            elif isinstance(ahead.answer.exception(), BrokenProcessPool):
                self._go_on_alone()
            else:
                return self._taken(ahead)
        return super().take(worker)  # it has not left: others were due first

    def cancel(self, worker: int) -> None:
        if worker in self._begun:
            super().cancel(worker)
            return
        ahead = self._ahead.pop(worker)
        self._cancelled.append(ahead)
        self.in_vain += not ahead.answer.cancel()

    def close(self) -> None:
        super().close()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _tried(self, worker: int) -> RoundResult:
        begun_at = time.perf_counter()
        result = super().take(worker)
        self._spent_s += time.perf_counter() - begun_at
        self._num_tried += 1
        if self._spent_s >= TRIAL_S:
            self._is_tried = True
            if self._spent_s >= self._num_tried * WORTH_S:
                self._start()
        return result

    def _taken(self, ahead: _Ahead) -> RoundResult:
        del self._ahead[ahead.begun.worker]
        self._free.append(ahead.slot)
        if ahead.answer.exception() is not None:
            return self._compute(ahead.begun)  # so that the error arises here, with its traceback
        loss, kept = ahead.answer.result()
        if kept:
            state = {name: torch.from_numpy(array) for name, array in kept.items()}
            self._local[ahead.begun.worker].load_state_dict(state)
        result = self._slots[ahead.slot]
        return loss, result[: self._size], result[self._size :]

    def _start(self) -> None:
        width = self._size + self._num_buffers
        memory = mmap.mmap(-1, 4 * self._num_slots * width)  # not a file of /dev/shm, which is small in containers
        self._slots = torch.frombuffer(memory, dtype=torch.float32).view(self._num_slots, width)
        self._free = list(range(self._num_slots))
        initial = (self, os.getpid())
        self._pool = ProcessPoolExecutor(self._processes, _forks(), initializer=_be_process, initargs=initial)

    def _submit(self) -> None:
        """Give the processes as many rounds as they may have."""
        self._free += [each.slot for each in self._cancelled if each.answer.done()]
        self._cancelled = [each for each in self._cancelled if not each.answer.done()]
        try:
            while self._pool is not None and self._free and self._begun:
                begun, slot = min(self._begun.values(), key=lambda each: each.due), self._free[-1]
                torch.cat([*begun.weights, begun.buffers], out=self._slots[slot])
                answer = self._pool.submit(_compute, slot, begun.worker, begun.number, self._kept(begun.worker))
                self._ahead[begun.worker] = _Ahead(self._begun.pop(begun.worker), self._free.pop(), answer)
        except BrokenProcessPool:
            self._go_on_alone()

    def _go_on_alone(self) -> None:
        warnings.warn("processes that compute gradients were killed: this one computes all others", stacklevel=2)
        self._pool = None
        self._begun |= {worker: ahead.begun for worker, ahead in self._ahead.items()}
        self._ahead.clear()

    def _kept(self, worker: int) -> WorkerArrays:
        return {name: tensor.numpy() for name, tensor in self._local[worker].state_dict().items()}

    def answer(self, slot: int, worker: int, number: int, kept: WorkerArrays) -> tuple[float, WorkerArrays]:
        """Compute a round in this process, of which the slot has the weights; the slot then has the result."""
        vector, local = self._slots[slot], self._local[worker]
        local.load_state_dict({name: torch.from_numpy(array) for name, array in kept.items()})
        weights, buffers = vector[: self._size], vector[self._size :]
        loss, pushed, after = local([weights], buffers, self.batches[worker], number)
        weights.copy_(pushed)
        buffers.copy_(after)
        return loss, self._kept(worker)


def _forks() -> BaseContext:
    """How a pool starts its processes. They ignore SIGTERM, by which it would end the others when one was killed."""
    from multiprocessing.context import ForkContext, ForkProcess  # not on Windows

    class Killed(ForkProcess):
        def terminate(self) -> None:
            self.kill()

    class Context(ForkContext):
        Process = Killed

    return Context()


_cores: Cores  # of the process that this one is a fork of


def _be_process(cores: Cores, parent: int) -> None:
    global _cores
    _cores = cores
    die_with(parent)
    gc.freeze()  # a collection ends nothing that is not this process's own
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _compute(slot: int, worker: int, number: int, kept: WorkerArrays) -> tuple[float, WorkerArrays]:
    return _cores.answer(slot, worker, number, kept)
