"""The runs of a plan, several at a time, on the cores of this machine."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from runners.display import PlanDisplay, say
from runners.one import check_possible, lacks_parameters, slow_precision
from runners.pool import Failed, Finished, MadeElsewhere, Message, Pool, Stopped
from runners.stop import StopRequested, defer_stop
from syncline.operations.tables import counted
from syncline.plan import Entry, Plan
from syncline.progress import Progress
from syncline.records.environment import free_cores, has_gpu
from syncline.records.lock import owner_of
from syncline.records.store import has_checkpoint

POLL_S = 0.5  # for messages of the runs
ELSEWHERE_EVERY_S = 2.0  # between two looks at the runs that other processes make
JOBS_ON_GPU = 2  # one may prepare while the other computes
STOP_S = 30.0  # for runs that are asked to stop to write their checkpoints


@dataclass(frozen=True, slots=True)
class Ended:
    """The identities of the runs that were made."""

    finished: set[str]
    failed: set[str]


def run_plan(
    plan: Plan,
    results: Path,
    *,
    jobs: int | None,
    fail_fast: bool,
    rerun: bool,
    until: float = math.inf,
    about: Callable[[], str] = str,
) -> Ended:
    """Make the runs of a plan that are not finished, `jobs` at a time, and show their progress.

    Runs that another process makes are waited for.

    Args:
        until: on the monotonic clock; then the runs under way are stopped, with checkpoints.
        about: further words for each line of progress.

    Returns:
        The runs that finished, and those that failed. With `fail_fast` the first failure stops the others, which stay
        unfinished.

    Raises:
        ConfigError: this machine cannot make one of the runs.
        StopRequested: this process was asked to stop, and has stopped the runs, of which some are left.
    """
    left = plan.left(results, rerun)
    for entry in left:
        check_possible(entry.config)
    display = PlanDisplay(plan, done=len(plan.unique()) - len(left), about=about)
    if lacking := sum(not rerun and lacks_parameters(entry.config, results) for entry in plan.unique()):
        say(f"{lacking} of the finished runs left no parameters; rerun=true makes all runs again with them")
    if note := slow_precision(entry.config for entry in left):
        say(note)
    at_a_time = num_jobs(left) if jobs is None else jobs
    pool = Pool(left, results, rerun, cores=max(1, free_cores() // max(1, min(at_a_time, len(left)))))
    scheduler = _Scheduler(left, results, pool, display, at_a_time, fail_fast, until)
    try:
        with display, defer_stop() as requested:
            scheduler.run(requested)
            number = requested()
    finally:
        pool.close()
    if number is not None and len(scheduler.ended.finished | scheduler.ended.failed) < len(left):
        raise StopRequested(number, f"{display.words()}, {scheduler.num_checkpointed} checkpointed")
    return scheduler.ended


def num_jobs(entries: Sequence[Entry]) -> int:
    """One for each core; on a GPU two, as the kernels of several processes take turns there.

    Runs of real processes are timed by the clock, and have the machine to themselves.
    """
    if any(entry.config.runner.time_kind == "wall" for entry in entries):
        return 1
    most = free_cores()
    on_gpu = any(entry.config.gradients and entry.config.device != "cpu" for entry in entries) and has_gpu()
    return min(most, JOBS_ON_GPU) if on_gpu else most


class _Scheduler:
    """Which runs are waiting, under way, or made by another process."""

    def __init__(
        self,
        left: Sequence[Entry],
        results: Path,
        pool: Pool,
        display: PlanDisplay,
        jobs: int,
        fail_fast: bool,
        until: float,
    ) -> None:
        self.ended, self.num_checkpointed = Ended(set(), set()), 0
        self._waiting = list(reversed(left))
        self._elsewhere = list[Entry]()
        self._results, self._pool, self._display = results, pool, display
        self._jobs, self._fail_fast, self._until = jobs, fail_fast, until
        self._next_look_s = 0.0  # at the runs made elsewhere
        self._deadline = math.inf  # of runs that were asked to stop; inf: they were not

    @property
    def _is_stopping(self) -> bool:
        return self._deadline < math.inf

    def run(self, requested: Callable[[], int | None]) -> None:
        """Until all runs are made, or those under way have stopped; `requested`: the signal that asks for that."""
        while self._pool.num_running or ((self._waiting or self._elsewhere) and not self._is_stopping):
            if requested() is not None and not self._is_stopping:
                under_way = counted(self._pool.num_running, "run")
                say(f"stopping: {under_way} to be checkpointed; press Ctrl-C again to stop now")
                self._stop()
            if time.monotonic() >= self._until and not self._is_stopping:
                say(f"the time is over: {counted(self._pool.num_running, 'run')} to be checkpointed")
                self._stop()
            if time.monotonic() >= self._deadline:
                return
            if not self._is_stopping:
                self._check_elsewhere()
                self._start_waiting()
            for entry, message in self._pool.messages(POLL_S):
                self._handle(entry, message)
            self._display.tick()

    def _stop(self) -> None:
        self._pool.stop()
        self._deadline = time.monotonic() + STOP_S

    def _check_elsewhere(self) -> None:
        """Take over the runs that no other process makes any more; for a finished one that costs nothing."""
        if self._elsewhere and time.monotonic() >= self._next_look_s:
            free = [entry for entry in self._elsewhere if owner_of(self._results / entry.config.identity) is None]
            self._elsewhere = [entry for entry in self._elsewhere if entry not in free]
            self._waiting += free
            self._next_look_s = time.monotonic() + ELSEWHERE_EVERY_S

    def _start_waiting(self) -> None:
        while self._waiting and self._pool.num_running < self._jobs:
            entry = self._waiting.pop()
            self._pool.start(entry)
            self._display.started(entry)

    def _handle(self, entry: Entry, message: Message) -> None:
        match message:
            case Progress():
                self._display.progressed(entry, message)
            case Finished(summary):
                self.ended.finished.add(entry.config.identity)
                self._display.finished(entry, summary)
            case MadeElsewhere(owner):
                self._elsewhere.append(entry)
                self._display.held(entry, owner)
            case Stopped(kept):
                self.num_checkpointed += bool(kept) or has_checkpoint(self._results / entry.config.identity)
                self._display.stopped(entry)
            case Failed(cause):
                self.ended.failed.add(entry.config.identity)
                self._display.failed(entry, cause)
                if self._fail_fast and not self._is_stopping:  # a second signal would interrupt checkpoints
                    self._stop()
