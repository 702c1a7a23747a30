"""What the workers compute in virtual time: true gradients at the versions they were granted.

All workers share one module, since only one computes at a time; each has its own snapshot and its own data.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from syncline.datasets.sharding import SharedCursor
from syncline.learning.compression import PushCompressor
from syncline.learning.gradient import WorkerBatches
from syncline.learning.local_steps import LocalSteps
from syncline.learning.server import Gradient, Shard, Version
from syncline.simulation.tensor_table import TensorTable


class Learners:
    """The learning side of all workers.

    Args:
        shards: of the parameter server; the workers pin and release their versions.
        local: what each worker computes for a push, on the module that all share.
        batches: of each worker.
        cursor: in the order that all workers share; None if each has batches of its own.
        compressors: of each worker's pushes; none if they are sent as they are.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        local: Sequence[LocalSteps],
        batches: Sequence[WorkerBatches],
        cursor: SharedCursor | None = None,
        compressors: Sequence[PushCompressor] = (),
    ) -> None:
        self._shards = shards
        self._local, self._compressors = local, compressors
        self._batches, self._cursor = batches, cursor
        self._iterations = [0] * len(batches)
        self._snapshots: list[list[Version | None]] = [[None] * len(shards) for _ in batches]
        self._free: list[Gradient] = []

    def receive(self, worker: int, shard: int) -> None:
        """The shard's current version becomes the worker's, in place of the one it had."""
        old = self._snapshots[worker][shard]
        if old is not None:
            self._shards[shard].unpin(old)  # first, so that a version that nobody else needs is free for the next
        self._snapshots[worker][shard] = self._shards[shard].pin()

    def pin(self, shard: int) -> Version:
        """The shard's current version, for a message; it is kept until it is taken or unpinned."""
        return self._shards[shard].pin()

    def unpin(self, shard: int, version: Version) -> None:
        """A message with this version is not used."""
        self._shards[shard].unpin(version)

    def take(self, worker: int, shard: int, version: Version) -> None:
        """A message's version becomes the worker's, in place of the one it had."""
        old = self._snapshots[worker][shard]
        if old is not None:
            self._shards[shard].unpin(old)
        self._snapshots[worker][shard] = version

    def seek(self, worker: int, iteration: int) -> None:
        """The worker's next push is that of this number."""
        assert self._cursor is None
        self._iterations[worker] = iteration

    def restart(self, worker: int) -> None:
        """The worker's process is another one: what it kept to itself is lost."""
        self._local[worker].load_state_dict({})
        if self._compressors:
            self._compressors[worker].load_state_dict({})

    def begin(self, worker: int) -> None:
        """The worker begins a gradient, which `compute` gives when it is finished."""
        if self._cursor is not None:
            number = self._cursor.begin(worker)
            self._batches[worker].prefetch(number)

    def compute(self, worker: int) -> tuple[float, Gradient]:
        """Loss and content of the worker's next push, from its snapshot; `release` it once for each shard."""
        number = self._next_iteration(worker)
        snapshot = [version for version in self._snapshots[worker] if version is not None]
        weights, buffers = [version.weights for version in snapshot], snapshot[0].buffers
        loss, flat, buffers = self._local[worker](weights, buffers, self._batches[worker], number)
        gradient = self._free.pop() if self._free else Gradient(flat.clone(), buffers.clone())
        gradient.flat.copy_(flat)
        if self._compressors:
            self._compressors[worker](gradient.flat, number)
        gradient.buffers.copy_(buffers)
        gradient.readers = len(self._shards)
        return loss, gradient

    def release(self, gradient: Gradient) -> None:
        """One shard is done with this gradient."""
        gradient.readers -= 1
        if gradient.readers == 0:
            self._free.append(gradient)

    def _next_iteration(self, worker: int) -> int:
        """Of the gradient that the worker finishes."""
        if self._cursor is not None:
            return self._cursor.finish(worker)
        iteration = self._iterations[worker]
        self._iterations[worker] = iteration + 1
        return iteration

    def state_dict(self, table: TensorTable) -> dict[str, Any]:
        """What the workers and the shards hold; the tensors go to the table."""
        for number, shard in enumerate(self._shards):
            table.put_all(f"optimizer-{number}", shard.optimizer.state_dict())
        for worker, local in enumerate(self._local):
            table.put_all(f"local-{worker}", local.state_dict())
        for worker, compressor in enumerate(self._compressors):
            table.put_all(f"compress-{worker}", compressor.state_dict())
        return {
            "iterations": list(self._iterations),
            "cursor": None if self._cursor is None else self._cursor.state_dict(),
            "snapshots": [[table.put(version) for version in snapshot] for snapshot in self._snapshots],
            "current": [table.put(shard.current) for shard in self._shards],
        }

    def load_state_dict(self, state: Mapping[str, Any], table: TensorTable) -> None:
        """Continue from what `state_dict` gave; for workers and shards that have done nothing yet."""
        for number, shard in enumerate(self._shards):
            shard.optimizer.load_state_dict(table.take_all(f"optimizer-{number}"))
            shard.current = table.current(state["current"][number])
        for worker, local in enumerate(self._local):
            local.load_state_dict(table.take_all(f"local-{worker}"))
        for worker, compressor in enumerate(self._compressors):
            compressor.load_state_dict(table.take_all(f"compress-{worker}"))
        self._iterations = list(state["iterations"])
        if self._cursor is not None:
            self._cursor.load_state_dict(state["cursor"])
        self._snapshots = [[table.version(number) for number in snapshot] for snapshot in state["snapshots"]]
