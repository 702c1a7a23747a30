"""States go to disk on a thread of their own, while the run goes on."""

import queue
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from syncline.records.snapshots import numbers, state_path, write_state


class Saver:
    """Writes states in the order in which they are given."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._work, name="saver", daemon=True)
        self._thread.start()

    def save(
        self, path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any], then: Callable[[], None]
    ) -> None:
        """Write a state, whose tensors must not change before `then` is called, on the saver's thread.

        Raises:
            OSError: an earlier one could not be written.
        """
        if self._error is not None:
            raise self._error

        def job() -> None:
            write_state(path, tensors, state)
            then()

        self._jobs.put(job)

    def finish(self) -> None:
        """Return when everything is on disk; errors as `save`."""
        self._jobs.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except OSError as error:
                self._error = error


def drop_old_checkpoints(folder: Path, shard: int) -> None:
    """All but the last two of this shard: other shards may not be as far."""
    for old in numbers(folder, shard)[:-2]:
        state_path(folder, old, shard).unlink()
