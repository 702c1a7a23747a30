"""Which workers of a shard are silent: a push of theirs is due, and it does not come."""

import time
from collections.abc import Callable

from syncline.live.wire.clock import RunClock


class Watchdog:
    """The last event of each worker, and how long ago it was.

    Args:
        hang_s: a worker that is silent for so long is named.
        leave_s: a worker that is silent for so long is dropped.
    """

    def __init__(self, hang_s: float, leave_s: float) -> None:
        self._hang_s, self._leave_s = hang_s, leave_s
        self.last_event: dict[int, tuple[float, str]] = {}  # worker -> (monotonic, what)
        self._named: set[int] = set()

    def connected(self, worker: int) -> None:
        self._named.discard(worker)

    def pushed(self, worker: int) -> None:
        self._named.discard(worker)
        self.note(worker, "pushed")

    def note(self, worker: int, event: str) -> None:
        """If a push of this worker is due, it is silent since this event."""
        self.last_event[worker] = time.monotonic(), event

    def check(
        self,
        clock: RunClock,
        owes: Callable[[int], bool],
        drop: Callable[[int, str], None],
        warn: Callable[[str], None],
    ) -> None:
        """Name the silent workers of which a push is due (`owes`), and `drop` them, saying why, after `leave_s`."""
        now = time.monotonic()
        for worker in list(self.last_event):
            then, event = self.last_event[worker]  # read only now: dropping one worker may release another
            silent_s = now - then
            if not owes(worker) or silent_s < min(self._hang_s, self._leave_s):
                continue
            if silent_s >= self._leave_s:
                drop(worker, f"silent for {silent_s:.1f} s")
            elif worker not in self._named:
                self._named.add(worker)
                at_s = then - clock.zero_s
                warn(f"worker {worker} is silent for {silent_s:.1f} s, last event: {event} at {at_s:.1f} s")
