"""What the workers compute in virtual time: true gradients at the versions they were granted.

All workers share one module, since only one computes at a time; each has its own snapshot and its own data.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from syncline.datasets.sharding import SharedCursor
from syncline.learning.compression import PullCompressor, PushCompressor
from syncline.learning.gradient import WorkerBatches
from syncline.learning.local_steps import LocalSteps
from syncline.learning.parameters import Gradient, Parameters, Version
from syncline.learning.worker_state import Stateful, WorkerState
from syncline.simulation.executors import Round, Serial
from syncline.simulation.tensor_table import TensorTable


class WorkerGradients:
    """The learning side of all workers.

    Args:
        shards: of the parameter server; the workers pin and release their versions.
        executor: computes what workers push.
        local: what each worker computes for a push, on the module that all share.
        batches: of each worker.
        cursor: in the order that all workers share; None if each has batches of its own.
        compressors: of each worker's pushes; none if they are sent as they are.
        pulls: of what each shard sends each worker, by worker and shard; none if that is the block as it is.
        is_awaited: a worker that waits goes on with the blocks that it is sent next, whatever happens meanwhile.
    """

    def __init__(
        self,
        shards: Sequence[Parameters],
        executor: Serial,
        local: Sequence[LocalSteps],
        batches: Sequence[WorkerBatches],
        cursor: SharedCursor | None = None,
        compressors: Sequence[PushCompressor] = (),
        pulls: Sequence[Sequence[PullCompressor]] = (),
        is_awaited: bool = False,
    ) -> None:
        self._shards, self._executor = shards, executor
        self._local, self._compressors, self._pulls = local, compressors, pulls
        self._batches, self._cursor, self._is_awaited = batches, cursor, is_awaited and cursor is None
        self._iterations = [0] * len(batches)
        self._snapshots: list[list[Version | None]] = [[None] * len(shards) for _ in batches]
        self._coming = [dict[int, Version | None]() for _ in batches]  # by shard, blocks on their way to each worker
        self._begun = set[int]()  # workers that the executor computes for
        self._free: list[Gradient] = []

    def pin(self, shard: int, worker: int) -> Version:
        """What the shard sends this worker now, for a message; it is kept until it is taken or unpinned.

        That is its current version, or one of the worker's own: what it will have by the compressed difference.
        """
        part = self._shards[shard]
        if not self._pulls:
            return part.pin()
        compressor = self._pulls[worker][shard]
        compressor(part.current.weights, self._iterations[worker] - 1)
        assert compressor.known is not None
        return part.own_version(compressor.known)

    def unpin(self, shard: int, version: Version) -> None:
        """A message with this version is not used."""
        self._shards[shard].unpin(version)

    def take(self, worker: int, shard: int, version: Version | None = None) -> None:
        """A message's version becomes the worker's, in place of the one it had; None: what the shard sends now."""
        old = self._snapshots[worker][shard]
        if old is not None:
            self._shards[shard].unpin(old)  # first, so that a version that nobody else needs is free for the next
        self._snapshots[worker][shard] = self.pin(shard, worker) if version is None else version

    def seek(self, worker: int, iteration: int) -> None:
        """The worker's next push is that of this number; not where all share an order, in which it takes the next."""
        self._iterations[worker] = iteration

    def restart(self, worker: int) -> None:
        """The worker's process is another one: what it kept to itself is lost."""
        self._local[worker].load_state_dict({})
        if self._compressors:
            self._compressors[worker].load_state_dict({})

    def lose(self, worker: int) -> None:
        """The worker's process is lost, with what it computes and has."""
        if worker in self._begun:
            self.cancel(worker)
        self._coming[worker].clear()
        self.restart(worker)
        for shard in range(len(self._shards)):
            self.connect(worker, shard)

    def connect(self, worker: int, shard: int) -> None:
        """The worker has connected to this shard, which knows nothing of what the worker has."""
        if self._pulls:
            self._pulls[worker][shard].load_state_dict({})

    def kept(self, worker: int) -> WorkerState:
        """What the worker keeps from push to push."""
        parts: dict[str, Stateful] = {"local": self._local[worker]}
        if self._compressors:
            parts["compress"] = self._compressors[worker]
        return WorkerState(parts)

    def sent(self, worker: int, shard: int, version: Version | None, now: float) -> None:
        """The worker is sent this block, or is told to go on with the one it has.

        Once it is sent the last one, it is known what it will compute.
        """
        if not self._is_awaited:
            return
        coming = self._coming[worker]
        coming[shard] = version
        if len(coming) == len(self._shards):
            self._begin(worker, [coming[shard] or old for shard, old in enumerate(self._snapshots[worker])], now)

    def begin(self, worker: int, due: float = 0.0) -> None:
        """The worker begins a gradient from its snapshot; `compute` will give it at these virtual seconds."""
        self._coming[worker].clear()
        if worker not in self._begun:
            self._begin(worker, self._snapshots[worker], due)

    def _begin(self, worker: int, snapshot: Sequence[Version | None], due: float) -> None:
        if self._cursor is None:
            number = self._iterations[worker]
        else:
            number = self._cursor.begin(worker)
            self._batches[worker].prefetch(number)
        whole = [version for version in snapshot if version is not None]
        self._begun.add(worker)
        self._executor.begin(Round(worker, number, [version.weights for version in whole], whole[0].buffers, due))

    def cancel(self, worker: int) -> None:
        """The gradient that the worker has begun comes to nothing."""
        self._begun.remove(worker)
        self._executor.cancel(worker)

    def compute(self, worker: int) -> tuple[float, Gradient]:
        """Loss and content of the push that the worker has begun; each shard releases it."""
        self._begun.remove(worker)
        loss, flat, buffers = self._executor.take(worker)
        number = self._next_iteration(worker)
        gradient = self._free.pop() if self._free else Gradient(flat.clone(), buffers.clone(), self._free)
        gradient.flat.copy_(flat)
        if self._compressors:
            self._compressors[worker](gradient.flat, number)
        gradient.buffers.copy_(buffers)
        gradient.readers = len(self._shards)
        return loss, gradient

    def _next_iteration(self, worker: int) -> int:
        """Of the gradient that the worker finishes."""
        if self._cursor is not None:
            return self._cursor.finish(worker)
        iteration = self._iterations[worker]
        self._iterations[worker] = iteration + 1
        return iteration

    def _parts(self) -> Iterator[tuple[str, Stateful]]:
        """What shards and workers keep from push to push, and its name in a checkpoint."""
        for number, part in enumerate(self._shards):
            yield f"optimizer-{number}", part.optimizer
            yield f"update-{number}", part.rule
        for worker, local in enumerate(self._local):
            yield f"local-{worker}", local
        for worker, push in enumerate(self._compressors):
            yield f"compress-{worker}", push
        for worker, pulls in enumerate(self._pulls):
            for shard, pull in enumerate(pulls):
                yield f"pulls-{worker}-{shard}", pull

    def state_dict(self, table: TensorTable) -> dict[str, Any]:
        """What the workers and the shards hold; the tensors go to the table."""
        table.put_states(self._parts())
        return {
            "iterations": list(self._iterations),
            "cursor": None if self._cursor is None else self._cursor.state_dict(),
            "snapshots": [[table.put(version) for version in snapshot] for snapshot in self._snapshots],
            "current": [table.put(shard.current) for shard in self._shards],
        }

    def load_state_dict(self, state: Mapping[str, Any], table: TensorTable) -> None:
        """Continue from what `state_dict` gave; for workers and shards that have done nothing yet."""
        table.take_states(self._parts())
        for number, shard in enumerate(self._shards):
            shard.current = table.current(state["current"][number])
        self._iterations = list(state["iterations"])
        if self._cursor is not None:
            self._cursor.load_state_dict(state["cursor"])
        self._snapshots = [[table.version(number) for number in snapshot] for snapshot in state["snapshots"]]
