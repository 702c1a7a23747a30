"""Observes a run of real processes: its progress, and the evaluation of the snapshots that it writes."""

import queue
import threading
from typing import Any

from runners.evaluator import Evaluator
from runners.failures import RunFailed
from syncline.config import RunConfig
from syncline.live.messages import ProgressReport
from syncline.live.supervisor import Supervisor
from syncline.monitor import RunMonitor
from syncline.records.snapshots import numbers, read_state, state_path
from syncline.records.writer import RecordWriter


class LiveObserver:
    """Observes all attempts of one run.

    A state has a part for each process that keeps parameters; its snapshot can be evaluated once every part is written.
    """

    def __init__(self, config: RunConfig, record: RecordWriter, monitor: RunMonitor, supervisor: Supervisor) -> None:
        self.monitor = monitor
        self.start_s = 0.0  # from the launch to the beginning of the run's clock
        self._config, self._record, self._folder, self._supervisor = config, record, record.folder, supervisor
        self._parts = range(num_parts(config))
        self._num_leaders = config.cluster.shards if config.strategy.has_server else 1
        self._progress: dict[int, ProgressReport] = {}  # leader -> its last report
        self._written: dict[int, set[int]] = {part: set() for part in self._parts}  # numbers of snapshots
        self._num_evaluated = 0  # snapshots that were evaluated or are queued for it
        self._evaluator: Evaluator | None = None
        self._thread: threading.Thread | None = None  # evaluates during the run
        self._queue: queue.SimpleQueue[int | None] = queue.SimpleQueue()  # numbers of snapshots for the thread
        self._rows: queue.SimpleQueue[dict[str, Any] | RunFailed] = queue.SimpleQueue()  # results

    def begun(self) -> None:
        """The run's clock has begun; that of its first attempt counts."""
        self.start_s = self.start_s or self.monitor.wall_s

    def rewind(self, checkpoint: float | None) -> None:
        """Go back to the checkpoint of this number, or to the beginning: drop all that was written after it."""
        self._join_thread()
        self.tick()
        updates = self._drop_checkpoints_after(checkpoint)
        rows = self.monitor.curve.rows
        kept = [row for row in rows if row["updates"] <= updates]
        if kept != rows:
            self._record.restart_evaluations()
            for row in kept:
                self._record.evaluation(row)
        self.monitor.restore(kept)
        self._num_evaluated = len(kept)
        for part in self._parts:
            self._written[part] = self._drop_snapshots_after(updates, part)
        self._evaluate_written()

    def progressed(self, leader: int, message: ProgressReport) -> None:
        self._progress[leader] = message
        self.tick()

    def tick(self) -> None:
        """Take in what was evaluated meanwhile, and report the progress if it is due.

        Raises:
            RunFailed: the evaluation failed.
        """
        while not self._rows.empty():
            row = self._rows.get()
            if isinstance(row, RunFailed):
                raise row
            self.monitor.add(row)
        if len(self._progress) == self._num_leaders and self.monitor.is_report_due:
            messages, first = self._progress.values(), self._progress[0]
            self.monitor.report(
                time_s=max(message.time_s for message in messages),
                updates=min(message.updates for message in messages),
                samples=min(message.samples for message in messages),
                loss=float("nan") if first.loss is None else first.loss,
                count=first.count,
            )

    def snapshot_written(self, part: int, number: int) -> None:
        self._written[part].add(number)
        self._evaluate_written()

    def finish(self, ended_by: str) -> str:
        """Evaluate what is left, and the last state unless the run has diverged. Returns why the run ended."""
        self._join_thread()
        evaluator = self._started_evaluator()
        for number in self._unevaluated():
            self._rows.put(self._evaluate(number))
        self.tick()
        if ended_by == "diverged":
            return ended_by
        paths = [self._folder / f"parameters-{part}.safetensors" for part in self._parts]
        row = evaluator.row(paths, 0.0)
        row["wall_s"] = self.monitor.wall_s
        if row["updates"] > self.monitor.curve.rows[-1]["updates"]:
            self.monitor.add(row)
        return ended_by if evaluator.is_finite(paths) and not self.monitor.has_diverged else "diverged"

    def close(self) -> None:
        """End the evaluation."""
        if self._evaluator is not None:
            self._evaluator.close()

    def _drop_checkpoints_after(self, checkpoint: float | None) -> int:
        """Those that not all parts have written. Returns the updates at the checkpoint, -1 without one."""
        folder = self._folder / "checkpoint"
        for part in self._parts:
            for number in numbers(folder, part):
                if checkpoint is None or number > checkpoint:
                    state_path(folder, number, part).unlink()
        if checkpoint is None:
            return -1
        states = [read_state(state_path(folder, checkpoint, part))[1] for part in self._parts]
        return min(int(state["totals"]["updates"]) for state in states)

    def _drop_snapshots_after(self, updates: int, part: int) -> set[int]:
        """Returns the numbers of those that are left."""
        folder, left = self._folder / "snapshots", set[int]()
        for number in numbers(folder, part):
            path = state_path(folder, number, part)
            if read_state(path)[1]["updates"] > updates:
                path.unlink()
            else:
                left.add(int(number))
        return left

    def _unevaluated(self) -> list[int]:
        """Snapshots that every part has written and that were not given out for evaluation before, in order."""
        complete = sorted(set.intersection(*self._written.values()))[self._num_evaluated :]
        self._num_evaluated += len(complete)
        return complete

    def _evaluate_written(self) -> None:
        """Leave complete snapshots to the thread, where they are evaluated during the run."""
        if self._config.live.evaluate == "during":
            if self._thread is None:
                self._thread = threading.Thread(target=self._evaluate_queued, name="evaluation", daemon=True)
                self._thread.start()
            for number in self._unevaluated():
                self._queue.put(number)

    def _join_thread(self) -> None:
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _evaluate_queued(self) -> None:
        try:
            while (number := self._queue.get()) is not None:
                self._rows.put(self._evaluate(number))
        except RunFailed as error:
            self._rows.put(error)

    def _started_evaluator(self) -> Evaluator:
        if self._evaluator is None:
            self._evaluator = Evaluator(self._config, self._folder, self._supervisor)
            self.monitor.describe(**self._evaluator.about)
        return self._evaluator

    def _evaluate(self, number: int) -> dict[str, Any]:
        paths = [state_path(self._folder / "snapshots", float(number), part) for part in self._parts]
        return self._started_evaluator().row(paths, self.monitor.wall_s)


def num_parts(config: RunConfig) -> int:
    """Processes that keep parameters: the shards, all replicas, or the first member of a collective where all agree."""
    if config.strategy.replicas:
        return config.cluster.workers
    return config.cluster.shards if config.strategy.has_server else 1
