"""States of a run on disk: tensors and plain types in one safetensors file, whole or not there at all.

snapshots/<number>-<shard>.safetensors     weights and buffers to be evaluated
checkpoint/<number>-<shard>.safetensors    all that a shard needs to go on
parameters-<shard>.safetensors             the weights and buffers at the end

In a collective the place of a shard is taken by a replica: every worker's, or the first one's where all are alike.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.records.store import RecordError

if TYPE_CHECKING:
    from torch import Tensor


def write_state(path: Path, tensors: Mapping[str, "Tensor"], state: Mapping[str, Any]) -> None:
    """Write tensors and plain types; the file appears at once, whole.

    Raises:
        OSError: it cannot be written; what was there before still is.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file  # needs torch, which readers of records do without

    path.parent.mkdir(exist_ok=True)
    draft = path.with_suffix(".draft")
    try:
        save_file(dict(tensors), draft, metadata={"state": json.dumps(state)})
    except SafetensorError as error:  # a full disk, for one
        raise OSError(f"{path}: {error}") from None
    draft.replace(path)


def read_state(path: Path) -> tuple[dict[str, "Tensor"], dict[str, Any]]:
    """What `write_state` wrote.

    Raises:
        RecordError: absent or broken.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            state = json.loads(file.metadata()["state"])
            return {name: file.get_tensor(name) for name in file.keys()}, state  # noqa: SIM118  no mapping
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path}: broken state ({type(error).__name__}: {error})") from None


def state_path(folder: Path, number: float, shard: int) -> Path:
    """Of one shard's part of the state with this number."""
    return folder / f"{number}-{shard}.safetensors"


def numbers(folder: Path, shard: int) -> list[float]:
    """Of the states that this shard has there, ascending."""
    found = folder.glob(f"*-{shard}.safetensors")
    return sorted(float(path.name.removesuffix(f"-{shard}.safetensors")) for path in found)


def latest(folder: Path, num_shards: int) -> float | None:
    """The highest number of which every shard has its part; None if there is none."""
    common = set.intersection(*(set(numbers(folder, shard)) for shard in range(num_shards)))
    return max(common, default=None)
