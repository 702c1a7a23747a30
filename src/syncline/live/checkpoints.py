"""States of one part of a run (a shard's block, a replica) on disk: snapshots, checkpoints, and the final parameters.

Files and folders are those of records/snapshots.py. They are written by a thread of its own, while the run continues.
The coordinator asks which checkpoints are complete, and does not import torch.
"""

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.config import RunConfig
from syncline.live.node.control import RunContext
from syncline.live.wire.control_messages import ControlMessage, SnapshotWritten
from syncline.records.snapshots import complete, numbers, read_state, read_values, state_path, worker_part, write_state
from syncline.records.store import RecordError

if TYPE_CHECKING:
    from torch import Tensor

    from syncline.learning.optimizer import Optimizer

_OPTIMIZER = "optimizer."  # before the names of its tensors


@dataclass(frozen=True, slots=True)
class PartState:
    """What one file holds."""

    tensors: "Mapping[str, Tensor]"  # must not change until `release`
    values: Mapping[str, Any]  # plain types that JSON can hold
    release: Callable[[], None] = lambda: None  # called on the writer's thread once the file is complete


@dataclass(slots=True)
class DueStates:
    """When a numbered state is due: number n after `(n - shift) * every` samples."""

    every: float
    number: int  # of the next state
    shift: int = 0

    def is_due(self, samples: int) -> bool:
        return samples >= (self.number - self.shift) * self.every

    def advance(self, samples: int) -> int:
        """Returns the number of the state that is due; the next one is due after more samples than these."""
        number, self.number = self.number, max(self.number, int(samples // self.every) + self.shift) + 1
        return number


class StateWriter:
    """Writes the states of one part of a run.

    Args:
        part: number of the shard or the replica.
        num_train: training samples, an epoch.
        samples: that the run has used so far.
        furthest: the samples of the part that is furthest.
        send: notifies the coordinator of each snapshot once it is on disk; called on the writer's thread.
    """

    def __init__(
        self,
        context: RunContext,
        part: int,
        num_train: int,
        samples: int,
        furthest: int,
        send: Callable[[ControlMessage], None],
    ) -> None:
        self._config, self._folder, self._part, self._send = context.config, context.folder, part, send
        self._executor = ThreadPoolExecutor(1, "state writer")  # one thread: states are written in order
        self._writes: deque[Future[None]] = deque()
        eval_every = context.config.eval_every_epochs * num_train
        checkpoint_every = context.config.live.checkpoint_every_epochs * num_train
        is_fresh = context.resume is None  # its initial state is evaluated, too
        self.snapshots = DueStates(eval_every, 0 if is_fresh else int(samples // eval_every) + 1)
        before = int(context.resume or 0)
        shift = max(0, before - int(furthest // checkpoint_every))  # they were more frequent before
        self.checkpoints = DueStates(checkpoint_every, max(before, int(samples // checkpoint_every) + shift) + 1, shift)

    def save_snapshot(self, state: PartState, samples: int) -> None:
        """The snapshot that is due; the coordinator evaluates it."""
        number = self.snapshots.advance(samples)
        path = state_path(self._folder / "snapshots", float(number), self._part)
        self._write(path, state, then=lambda: self._send(SnapshotWritten(number)))

    def save_checkpoint(self, state: PartState, samples: int) -> float:
        """The checkpoint that is due. Returns its number."""
        number = float(self.checkpoints.advance(samples))
        self.write_checkpoint(state, number)
        return number

    def write_checkpoint(self, state: PartState, number: float) -> None:
        """The checkpoint of this number; one with which the run stops has none that is due."""
        self._write(
            state_path(self._folder / "checkpoint", number, self._part),
            state,
            then=partial(drop_old, self._config, self._folder, self._part),
        )

    def save_parameters(self, state: PartState) -> None:
        self._write(self._folder / f"parameters-{self._part}.safetensors", state)

    def finish(self) -> None:
        """Return when all states are on disk. Raises OSError if one could not be written; so may the other methods."""
        self._executor.shutdown()
        self._raise_errors()

    def _write(self, path: Path, state: PartState, then: Callable[[], None] = lambda: None) -> None:
        def write() -> None:
            write_state(path, state.tensors, state.values)
            state.release()
            then()

        self._raise_errors()
        self._writes.append(self._executor.submit(write))

    def _raise_errors(self) -> None:
        while self._writes and self._writes[0].done():
            self._writes.popleft().result()


def read_checkpoint(context: RunContext, part: int | str) -> "tuple[dict[str, Tensor], dict[str, Any]] | None":
    """Tensors and values of this part of the checkpoint to resume from; None: a fresh run."""
    if context.resume is None:
        return None
    return read_state(state_path(context.folder / "checkpoint", context.resume, part))


def optimizer_tensors(optimizer: "Optimizer") -> "dict[str, Tensor]":
    """An optimizer's own tensors under the names that they have in a checkpoint."""
    return {f"{_OPTIMIZER}{name}": tensor for name, tensor in optimizer.state_dict().items()}


def load_parameters(
    tensors: "Mapping[str, Tensor]", weights: "Tensor", buffers: "Tensor", optimizer: "Optimizer"
) -> None:
    """Copy weights, buffers and the optimizer's state from the tensors of a checkpoint."""
    weights.copy_(tensors["weights"])
    buffers.copy_(tensors["buffers"])
    own = {name.removeprefix(_OPTIMIZER): t for name, t in tensors.items() if name.startswith(_OPTIMIZER)}
    optimizer.load_state_dict({name: tensor.to(weights.device) for name, tensor in own.items()})


def num_parts(config: RunConfig) -> int:
    """Processes that keep parameters: the shards, all replicas, or the first member of a collective where all agree."""
    if config.strategy.has_replicas:
        return config.cluster.workers
    return config.cluster.shards if config.strategy.has_server else 1


def newest_checkpoint(
    config: RunConfig, folder: Path, tell: Callable[[str], object] = lambda line: None
) -> float | None:
    """The number of the newest checkpoint of which every part is there and can be read; None if there is none.

    Args:
        folder: of the record.
        tell: is called with a line for each newer one that has a broken part.
    """
    folder, count = folder / "checkpoint", num_parts(config)
    if config.keeps_state_at_workers and not config.strategy.has_server:
        count = config.cluster.workers
    for number in reversed(complete(folder, count)):
        try:
            parts = [read_values(state_path(folder, number, part)) for part in range(count)]
            if not config.keeps_state_at_workers or _has_kept(config, folder, number, parts):
                return number
        except RecordError as error:
            tell(f"{error}; this checkpoint is not used")
    return None


def _has_kept(config: RunConfig, folder: Path, number: float, parts: list[dict[str, Any]]) -> bool:
    """Whether a checkpoint with these parts has what each worker kept before the push with which it would continue.

    A worker writes it for one shard, and perhaps again for another one, unless it is lost before.
    """
    if not config.strategy.has_server:
        return True  # the parts are those of the workers
    first = min if config.strategy.pull_rule(config.cluster.shards) is None else max  # as `Links.first_iteration`
    for worker in {worker for shard in parts for worker in shard["active"]}:
        path = state_path(folder, number, worker_part(worker))
        iteration = first(shard["iterations"][worker] for shard in parts)
        if not path.exists() or read_values(path)["iteration"] != iteration:
            return False
    return True


def drop_old(config: RunConfig, folder: Path, part: int | str) -> None:
    """All checkpoints of one part before its last two that were due, and before the newest one that can be resumed.

    Args:
        folder: of the record.
    """
    newest, found = newest_checkpoint(config, folder), numbers(folder / "checkpoint", part)
    due = [number for number in found if number.is_integer()]
    if newest is None or len(due) < 2:
        return
    for number in found:
        if number < min(newest, due[-2]):
            state_path(folder / "checkpoint", number, part).unlink()
