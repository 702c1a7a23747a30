"""States of a run on disk: tensors and plain types in one safetensors file, written atomically.

snapshots/<number>-<shard>.safetensors     weights and buffers to be evaluated
checkpoint/<number>-<shard>.safetensors    all that a shard needs to resume
checkpoint/<number>-worker<w>.safetensors  what a worker keeps from push to push, if there is anything
parameters-<shard>.safetensors             the weights and buffers at the end

In a collective a replica takes the place of a shard: that of every worker, or only of the first if all are equal.
"""

import errno
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.records.store import RecordError

if TYPE_CHECKING:
    from torch import Tensor

MOST_ON_THE_WAY = 10  # checkpoints that were due, but are not on disk, when a run is asked to stop


def write_state(path: Path, tensors: Mapping[str, "Tensor"], state: Mapping[str, Any]) -> None:
    """Write tensors and plain types atomically. Raises OSError: it cannot be written; an existing file is unchanged."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file  # imports torch, which readers of records do not need

    path.parent.mkdir(exist_ok=True)
    draft = path.with_suffix(".draft")
    try:
        save_file(dict(tensors), draft, metadata={"state": json.dumps(state)})
    except SafetensorError as error:  # a full disk, for example
        number = re.search(r"\(os error (\d+)\)", str(error))
        code = int(number[1]) if number else errno.EIO
        raise OSError(code, os.strerror(code) if number else str(error), str(path)) from None
    with draft.open("r+b") as file:
        os.fsync(file.fileno())  # a power failure after the renaming must not leave an empty file
    draft.replace(path)


def read_state(path: Path) -> tuple[dict[str, "Tensor"], dict[str, Any]]:
    """Read what `write_state` wrote. Raises RecordError: absent or broken."""
    with _opened(path, "pt") as file:
        state = json.loads(file.metadata()["state"])
        return {name: file.get_tensor(name) for name in file.keys()}, state  # noqa: SIM118  no mapping


def read_values(path: Path) -> dict[str, Any]:
    """The plain types alone, without reading the tensors. Raises RecordError: absent or broken."""
    with _opened(path, "numpy") as file:
        values: dict[str, Any] = json.loads(file.metadata()["state"])
        return values


@contextmanager
def _opened(path: Path, framework: str) -> Iterator[Any]:
    """A file that `write_state` wrote. Raises RecordError: absent or broken."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework=framework) as file:
            yield file
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path}: broken state ({type(error).__name__}: {error})") from None


def worker_part(worker: int) -> str:
    """In place of the number of a shard: the worker's part of a checkpoint."""
    return f"worker{worker}"


def state_path(folder: Path, number: float, shard: int | str) -> Path:
    """Of one shard's part of the state with this number."""
    return folder / f"{number}-{shard}.safetensors"


def number_of(path: Path) -> float:
    """The inverse of `state_path`."""
    return float(path.name.partition("-")[0])


def stop_number(folder: Path) -> float:
    """Of the checkpoint with which a run stops that has these: above those that are due until all parts know of it.

    No other checkpoint has this number: those that are due have whole numbers, and that of a later stop is greater.
    """
    newest = max(map(number_of, folder.glob("*.safetensors")), default=0.0)
    return int(newest) + MOST_ON_THE_WAY + 0.5


def numbers(folder: Path, shard: int | str) -> list[float]:
    """Of the states that this shard has there, ascending."""
    found = folder.glob(f"*-{shard}.safetensors")
    return sorted(map(number_of, found))


def complete(folder: Path, num_shards: int) -> list[float]:
    """The numbers of which every shard has its part, ascending."""
    return sorted(set.intersection(*(set(numbers(folder, shard)) for shard in range(num_shards))))
