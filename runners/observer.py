"""Observes a run of real processes: its progress, and the evaluation of the snapshots that it writes."""

import itertools
import json
import socket
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

from runners.display import say
from runners.failures import RunFailed, first_failure
from syncline.config import RunConfig
from syncline.live.checkpoints import num_parts
from syncline.live.node.process import MAX_MESSAGE_BYTES
from syncline.live.wire.control_messages import ProgressReport
from syncline.monitor import RunMonitor
from syncline.records.snapshots import number_of, numbers, read_values, state_path
from syncline.records.writer import RecordWriter

MAX_LOST = 10  # evaluators that are killed while they evaluate the same state
ANSWER_S = 0.2  # between two looks whether the run has ended meanwhile


class Evaluator:
    """Asks the process that evaluates (syncline/live/node/evaluation.py), which the keeper starts, and starts again.

    The methods raise RunFailed if it fails.

    Args:
        line: to the evaluator.
        folder: of the record.
    """

    def __init__(self, line: socket.socket, folder: Path) -> None:
        self._line, self._folder = line, folder
        self._numbers = itertools.count(time.monotonic_ns())  # of questions: none is one of an earlier coordinator
        self._is_closed = False
        line.settimeout(ANSWER_S)

    def about(self) -> dict[str, Any]:
        about: dict[str, Any] = self._ask("about")
        return about

    def row(self, paths: list[Path], wall_s: float) -> dict[str, Any]:
        row: dict[str, Any] = self._ask("row", list(map(str, paths)), wall_s)
        return row

    def is_finite(self, paths: list[Path]) -> bool:
        return self._ask("is_finite", list(map(str, paths))) is True

    def close(self) -> None:
        """Wait for no answer any more."""
        self._is_closed = True

    def _ask(self, *question: Any) -> Any:
        number, starts = next(self._numbers), 0
        request = json.dumps([number, str(self._folder.absolute()), *question]).encode()
        self._line.sendall(request)
        while not self._is_closed:
            with suppress(TimeoutError):
                message = json.loads(self._line.recv(MAX_MESSAGE_BYTES))
                if not message:  # it has started, perhaps again
                    starts += 1
                    if starts > MAX_LOST:
                        raise RunFailed(f"the process that evaluates was killed {MAX_LOST} times")
                    self._line.sendall(request)
                elif message[0] == number:
                    if len(message) == 1:
                        raise first_failure(self._folder) or RunFailed("the process that evaluates has failed")
                    return message[1]
        raise RunFailed("the run has ended")


class LiveObserver:
    """Observes all attempts of one run.

    A state has a part for each process that keeps parameters; its snapshot can be evaluated once every part is written.
    """

    def __init__(self, config: RunConfig, record: RecordWriter, monitor: RunMonitor, evaluator: Evaluator) -> None:
        self.monitor = monitor
        self.start_s = 0.0  # from the launch to the beginning of the run's clock
        self.restart_s = 0.0  # from each loss to the next beginning of the run's clock, in all
        self.clock_error_s = 0.0  # the largest with which a process knows the coordinator's clock
        self._config, self._record, self._folder, self._evaluator = config, record, record.folder, evaluator
        self._parts = range(num_parts(config))
        self._num_leaders = config.cluster.shards if config.strategy.has_server else 1
        self._resumes = False  # from a checkpoint
        self._lost_at: float | None = None  # monotonic; None: the clock runs, or has not begun yet
        self._progress: dict[int, ProgressReport] = {}  # leader -> its last report
        self._written: dict[int, set[int]] = {part: set() for part in self._parts}  # numbers of snapshots
        self._num_evaluated = 0  # snapshots that were evaluated or are queued for it
        self._is_described = False  # the evaluator has said what the monitor is to know
        self._executor = ThreadPoolExecutor(1, "evaluation")
        self._evaluations: deque[Future[dict[str, Any]]] = deque()  # rows, in order

    def state_dict(self) -> dict[str, Any]:
        """What the summary has of it, and a run that has ended leaves to who evaluates its last snapshots."""
        return {"start_s": self.start_s, "restart_s": self.restart_s, "clock_error_s": self.clock_error_s}

    def evaluate_ended(self, state: Mapping[str, Any]) -> None:
        """The run has ended before, and left this `state_dict`; its snapshots are to be evaluated."""
        self.start_s, self.restart_s, self.clock_error_s = state["start_s"], state["restart_s"], state["clock_error_s"]
        self._written = {part: {*map(int, numbers(self._folder / "snapshots", part))} for part in self._parts}

    def begun(self) -> None:
        """The run's clock has begun; that of its first attempt counts."""
        self.start_s = self.start_s or self.monitor.wall_s
        if self._lost_at is not None:
            away_s, self._lost_at = time.monotonic() - self._lost_at, None
            self.restart_s += away_s
            say(f"the run continues after {away_s:.1f} s")
        elif self._resumes:
            say("the run continues from its last checkpoint")

    def lost(self) -> None:
        """A part of the run was lost that the others need: no time of the run's clock passes until it begins again."""
        self._lost_at = self._lost_at or time.monotonic()  # the first of losses without a beginning between them

    def rewind(self, checkpoint: float | None) -> None:
        """Go back to the checkpoint of this number, or to the beginning: drop all that was written after it."""
        self._resumes = checkpoint is not None
        self._await_evaluations()
        updates = self._drop_other_checkpoints(checkpoint)
        left = {part: self._drop_snapshots_after(updates[part], part) for part in self._parts}
        complete = set.intersection(*(set(snapshots) for snapshots in left.values()))
        evaluated = {min(snapshots[number] for snapshots in left.values()) for number in complete}
        rows = self.monitor.curve.rows
        kept = [row for row in rows if row["updates"] in evaluated]
        if kept != rows:
            self._record.restart_evaluations()
            for row in kept:
                self._record.evaluation(row)
        self.monitor.restore(kept)
        self._num_evaluated = len(kept)
        self._written = {part: set(snapshots) for part, snapshots in left.items()}
        if self._config.live.evaluate == "during":
            self._evaluate_written()

    def progressed(self, leader: int, message: ProgressReport) -> None:
        self._progress[leader] = message
        self.monitor.num_train = message.num_train
        self.tick()

    def tick(self) -> None:
        """Take in what was evaluated meanwhile, and report the progress if it is due.

        Raises:
            RunFailed: the evaluation failed.
        """
        while self._evaluations and self._evaluations[0].done():
            self.monitor.add(self._evaluations[0].result())
            self._evaluations.popleft()
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
        if self._config.live.evaluate == "during":
            self._evaluate_written()

    def finish(self, ended_by: str) -> str:
        """Evaluate what is left, and the last state unless the run has diverged. Returns why the run ended."""
        self._evaluate_written()
        self._await_evaluations()
        self._describe()
        if ended_by == "diverged":
            return ended_by
        paths = [self._folder / f"parameters-{part}.safetensors" for part in self._parts]
        row, is_finite = self._evaluator.row(paths, 0.0), self._evaluator.is_finite(paths)
        row["wall_s"] = self.monitor.wall_s
        rows = self.monitor.curve.rows
        if not rows or row["updates"] > rows[-1]["updates"]:
            self.monitor.add(row)
        return ended_by if is_finite and not self.monitor.has_diverged else "diverged"

    def close(self) -> None:
        self._evaluator.close()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _await_evaluations(self) -> None:
        """Raises RunFailed: the evaluation failed."""
        while self._evaluations:
            wait(self._evaluations)
            self.tick()

    def _drop_other_checkpoints(self, checkpoint: float | None) -> list[int]:
        """Those that not all parts have written, and older ones.

        Returns:
            The updates of each part at this one, -1 without one.
        """
        folder, updates = self._folder / "checkpoint", [-1 for _ in self._parts]
        if checkpoint is not None:
            states = [read_values(state_path(folder, checkpoint, part)) for part in self._parts]
            updates = [int(state["totals"]["updates"]) for state in states]
        for path in folder.glob("*.safetensors"):
            if number_of(path) != checkpoint:
                path.unlink()
        return updates

    def _drop_snapshots_after(self, updates: int, part: int) -> dict[int, int]:
        """Returns the updates of those that are left, by their numbers."""
        folder, left = self._folder / "snapshots", dict[int, int]()
        for number in numbers(folder, part):
            path = state_path(folder, number, part)
            its_updates = int(read_values(path)["updates"])
            if its_updates > updates:
                path.unlink()
            else:
                left[int(number)] = its_updates
        return left

    def _evaluate_written(self) -> None:
        """Evaluate, on the thread, the snapshots that every part has written and that were not given to it before."""
        complete = sorted(set.intersection(*self._written.values()))[self._num_evaluated :]
        self._num_evaluated += len(complete)
        self._evaluations.extend(self._executor.submit(self._evaluate, number) for number in complete)

    def _describe(self) -> None:
        if not self._is_described:
            self.monitor.describe(**self._evaluator.about())
            self._is_described = True

    def _evaluate(self, number: int) -> dict[str, Any]:
        self._describe()
        paths = [state_path(self._folder / "snapshots", float(number), part) for part in self._parts]
        return self._evaluator.row(paths, self.monitor.wall_s)
