"""The parts of a checkpoint: who writes them, and of which checkpoint all are there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from syncline.config import RunConfig
from syncline.records.snapshots import complete, numbers, read_values, state_path, worker_part
from syncline.records.store import RecordError


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
