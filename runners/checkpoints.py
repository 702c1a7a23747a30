"""Checkpoints of a run in virtual time: one file, written when the run is told to stop, and now and then."""

import time
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

from runners.display import say
from runners.stop import StopRequested, defer_stop
from syncline.records.snapshots import read_state, write_state
from syncline.records.store import RecordError
from syncline.records.writer import RecordWriter

FORMAT = 2  # of the state; a checkpoint of another one is of no use

State = tuple[dict[str, Any], dict[str, Any]]  # tensors; plain types


def checkpoint_path(folder: Path) -> Path:
    """Of the run whose record this is."""
    return folder / "checkpoint" / "run.safetensors"


def read_checkpoint(folder: Path, with_events: bool) -> State | None:
    """What the run was when it was kept last; None if it never was, or, with a line that says why, for one of no use.

    Args:
        with_events: whether the events are to be written; then they must have been before.
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
        begin_anew(error)
        return None
    return tensors, state


def begin_anew(why: RecordError) -> None:
    """Say so: what is there cannot be gone on with."""
    say(f"{why}; the run starts from the beginning")


class Checkpoints:
    """Writes them, as `syncline.simulation.run.Checkpointer`; while it is entered, no first signal breaks anything off.

    Args:
        every_s: wall seconds between two of them, if nobody tells to stop.
    """

    def __init__(self, record: RecordWriter, every_s: float) -> None:
        self._record, self._every_s = record, every_s
        self._patience: AbstractContextManager[Any] = defer_stop()

    def __enter__(self) -> "Checkpoints":
        self._asked = self._patience.__enter__()
        self._next = time.monotonic() + self._every_s
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patience.__exit__(kind, error, trace)

    @property
    def is_due(self) -> bool:
        return self._asked() is not None or time.monotonic() >= self._next

    def keep(self, state: Any) -> None:
        """Write it down.

        Raises:
            StopRequested: the run is to stop.
            OSError: there is no space, or no permission.
        """
        tensors, about = state
        folder, events = self._record.folder, self._record.events
        log = None if events is None else events.state_dict()
        write_state(checkpoint_path(folder), tensors, {"format": FORMAT, "log": log, **about})
        self._next = time.monotonic() + self._every_s
        if (number := self._asked()) is not None:
            raise StopRequested(
                number, f"{folder.name} checkpointed at update {about['engine']['totals']['updates']:,}"
            )
