"""Checkpoints of a run in virtual time: one file, written when the run is asked to stop, and periodically."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from runners.display import say
from runners.stop import StopRequested, defer_stop
from syncline.records.snapshots import read_state, write_state
from syncline.records.store import RecordError
from syncline.records.writer import RecordWriter

FORMAT = 7  # of the state; a checkpoint of another format cannot be resumed

RunState = tuple[Mapping[str, Any], Mapping[str, Any]]  # as of syncline.simulation.run, which imports torch


def checkpoint_path(folder: Path) -> Path:
    """The checkpoint of the run whose record this folder is."""
    return folder / "checkpoint" / "run.safetensors"


def read_checkpoint(folder: Path, with_events: bool) -> RunState | None:
    """The last state that was saved; None if there is none, or, after a line that says why, if it cannot be resumed.

    Args:
        with_events: whether the run logs events; then it must have done so before.
    """
    path = checkpoint_path(folder)
    if not path.exists():
        return None
    try:
        tensors, state = read_state(path)
        if state.get("format") != FORMAT:
            raise RecordError(f"{path}: checkpoint format {state.get('format')}, this version reads {FORMAT}")
        if (state["log"] is not None) != with_events:
            raise RecordError(f"{path}: written with runner.events={'false' if with_events else 'true'}")
    except RecordError as error:
        report_restart(error)
        return None
    return tensors, state


def report_restart(why: RecordError) -> None:
    say(f"{why}; the run starts from the beginning")


class FileCheckpointer:
    """Implements `syncline.simulation.run.Checkpointer`; defers the first signal while it is entered.

    Args:
        every_s: wall seconds between two checkpoints, unless the run is asked to stop.
    """

    def __init__(self, record: RecordWriter, every_s: float) -> None:
        self._record, self._every_s = record, every_s
        self._deferred: AbstractContextManager[Callable[[], int | None]] = defer_stop()

    def __enter__(self) -> "FileCheckpointer":
        self._requested = self._deferred.__enter__()
        self._next = time.monotonic() + self._every_s
        return self

    def __exit__(self, *error: Any) -> None:
        self._deferred.__exit__(*error)

    @property
    def is_due(self) -> bool:
        return self._requested() is not None or time.monotonic() >= self._next

    def save(self, state: RunState) -> None:
        """Write the checkpoint.

        Raises:
            StopRequested: the run was asked to stop.
            OSError: there is no space, or no permission.
        """
        tensors, about = state
        folder, events = self._record.folder, self._record.events
        log = None if events is None else events.state_dict()
        write_state(checkpoint_path(folder), tensors, {"format": FORMAT, "log": log, **about})
        self._next = time.monotonic() + self._every_s
        if (number := self._requested()) is not None:
            raise StopRequested(
                number, f"{folder.name} checkpointed at update {about['engine']['totals']['updates']:,}"
            )
