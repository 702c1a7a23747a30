"""Which workers of a shard are silent: a push of theirs is due, and it does not come."""

import time
from collections.abc import Callable

from syncline.live.clock import RunClock


class Watchdog:
    """The last event of each worker, and how long ago it was.

    Args:
        hang_s: a worker that is silent for so long is named.
        leave_s: a worker that is silent for so long is dropped.
        pulls: workers have a pull rule, and push when it permits, whatever the shard has answered.
    """

    def __init__(self, hang_s: float, leave_s: float, pulls: bool) -> None:
        self._hang_s, self._leave_s, self._pulls = hang_s, leave_s, pulls
        self.last_event: dict[int, tuple[float, str]] = {}  # worker -> (monotonic, what)
        self._tags: dict[int, int] = {}  # of each worker's last push since it connected
        self._named: set[int] = set()

    def connected(self, worker: int) -> None:
        self._named.discard(worker)
        self._tags.pop(worker, None)

    def pushed(self, worker: int, tag: int) -> None:
        self._named.discard(worker)
        self._tags[worker] = tag
        self.last_event[worker] = time.monotonic(), "pushed"

    def repeated(self, worker: int) -> None:
        self.last_event[worker] = time.monotonic(), "repeated"

    def granted(self, worker: int, version: int, is_busy: bool, has_read_last: bool) -> None:
        """A block is on its way.

        Args:
            is_busy: the worker computes. Its push is due from now on if this interrupts it, or if its pull rule could
                not let it continue without this version.
            has_read_last: it has read the block before; if not, it counts as silent as before.
        """
        restarts = not self._pulls or self._tags.get(worker, -1) == version - 1
        if not is_busy or (has_read_last and restarts):
            self.last_event[worker] = time.monotonic(), "granted"

    def check(
        self,
        clock: RunClock,
        owes: Callable[[int], bool],
        drop: Callable[[int, str], None],
        warn: Callable[[str], None],
    ) -> None:
        """Name workers that are silent, then drop them.

        Args:
            owes: a push of this worker is due.
            drop: called with a worker and why.
            warn: called with a warning.
        """
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
