"""The curve and the progress of a run of real processes: what they leave on disk is evaluated during it or after."""

import json
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from runners.agents import RunFailed, first_failure
from syncline.config import RunConfig
from syncline.live.control import Message
from syncline.live.process import Job
from syncline.live.supervisor import MAX_MESSAGE_BYTES, Supervisor
from syncline.progress import Curve, Limits, Progress, Totals, is_finite
from syncline.records.snapshots import numbers, read_state, state_path
from syncline.records.writer import RecordWriter


class Course:
    """Of one run, over all its attempts."""

    def __init__(
        self,
        config: RunConfig,
        record: RecordWriter,
        on_evaluation: Callable[[Mapping[str, Any]], None],
        on_progress: Callable[[Progress], None],
        begun: float,
        supervisor: Supervisor,
    ) -> None:
        self.curve = Curve(config)
        self.start_s = 0.0  # from the launch to the beginning of the run's clock
        self.num_train = self.num_parameters = 0  # known when something was evaluated
        self.best_possible: Mapping[str, float] = {}  # likewise
        self._config, self._record, self._folder = config, record, record.folder
        self._on_evaluation, self._on_progress, self.begun = on_evaluation, on_progress, begun
        self._parts = range(num_parts(config))
        self._num_leaders = config.cluster.shards if config.strategy.has_server else 1
        self._progress: dict[int, Message] = {}
        self._written: dict[int, set[int]] = {part: set() for part in self._parts}
        self._evaluated = 0  # snapshots
        self._supervisor = supervisor
        self._evaluator: Evaluator | None = None
        self._waiting: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._rows: queue.SimpleQueue[dict[str, Any] | Exception] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._next_report = 0.0
        self._is_broken = False  # a state was worthless

    def go_back(self, checkpoint: float | None) -> None:
        """Forget what was made after this checkpoint, of which all will be made again."""
        self._end_thread()
        self.tick()
        folder = self._folder / "snapshots"
        updates = -1
        for part in self._parts:
            for number in numbers(self._folder / "checkpoint", part):
                if checkpoint is None or number > checkpoint:  # not of all parts
                    state_path(self._folder / "checkpoint", number, part).unlink()
        if checkpoint is not None:
            states = [read_state(state_path(self._folder / "checkpoint", checkpoint, part))[1] for part in self._parts]
            updates = min(state["totals"]["updates"] for state in states)
        kept = [row for row in self.curve.rows if row["updates"] <= updates]
        if kept != self.curve.rows:
            self.curve = Curve(self._config)
            self._record.restart_evaluations()
            for row in kept:
                self.curve.add(row)
                self._record.evaluation(row)
        self._evaluated, self._is_broken = len(kept), False
        for part in self._parts:
            self._written[part] = set()
            for number in numbers(folder, part):
                path = state_path(folder, number, part)
                if read_state(path)[1]["updates"] > updates:
                    path.unlink()
                else:
                    self._written[part].add(int(number))
        self._evaluate_what_is_there()

    def progressed(self, shard: int, message: Message) -> None:
        self._progress[shard] = message
        self.tick()

    def tick(self) -> None:
        """Show how far the run is, and what was evaluated meanwhile.

        Raises:
            RunFailed: it could not be evaluated.
        """
        while not self._rows.empty():
            row = self._rows.get()
            if isinstance(row, Exception):
                raise row
            if is_finite(row):
                self.curve.add(row)
                self._on_evaluation(row)
            else:
                self._is_broken = True
        now = time.perf_counter()
        if len(self._progress) < self._num_leaders or now < self._next_report:
            return
        self._next_report = now + 0.1
        num_train = self.num_train or self._config.dataset.num_train
        messages = list(self._progress.values())
        totals = Totals(1)
        totals.time_s = max(message["time_s"] for message in messages)
        totals.updates = min(message["updates"] for message in messages)
        totals.samples = min(message["samples"] for message in messages)
        loss = self._progress[0]["loss"]
        self._on_progress(
            Progress(
                updates=totals.updates,
                samples=totals.samples,
                epoch=totals.samples / num_train,
                time_s=totals.time_s,
                loss=float("nan") if loss is None else loss,
                metric=self.curve.metric,
                value=self.curve.value,
                fraction=Limits.of(self._config, num_train).fraction(totals),
                wall_s=now - self.begun,
                count=self._progress[0].get("count"),
            )
        )

    def snapshot_written(self, shard: int, number: int) -> None:
        self._written[shard].add(number)
        self._evaluate_what_is_there()

    def finish(self, ended_by: str) -> str:
        """Evaluate what is left, and the last state unless it is worthless. Returns why the run ended."""
        self._end_thread()
        evaluator = self._started_evaluator()
        for number in self._whole():
            self._rows.put(self._row(number))
        self.tick()
        if ended_by == "diverged":
            return ended_by
        paths = [self._folder / f"parameters-{part}.safetensors" for part in self._parts]
        row = evaluator.row(paths, 0.0)
        row["wall_s"] = time.perf_counter() - self.begun
        if row["updates"] > self.curve.rows[-1]["updates"]:
            self._rows.put(row)
            self.tick()
        return ended_by if evaluator.is_finite(paths) and not self._is_broken else "diverged"

    def close(self) -> None:
        """Evaluate nothing more."""
        if self._evaluator is not None:
            self._evaluator.close()

    def _whole(self) -> list[int]:
        """Snapshots of which every part is there and that were not evaluated, in order; they are, from now on."""
        whole = sorted(set.intersection(*self._written.values()))[self._evaluated :]
        self._evaluated += len(whole)
        return whole

    def _evaluate_what_is_there(self) -> None:
        if self._config.live.evaluate == "during":
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="evaluation", daemon=True)
                self._thread.start()
            for number in self._whole():
                self._waiting.put(number)

    def _end_thread(self) -> None:
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        try:
            while (number := self._waiting.get()) is not None:
                self._rows.put(self._row(number))
        except RunFailed as error:
            self._rows.put(error)

    def _started_evaluator(self) -> "Evaluator":
        if self._evaluator is None:
            self._evaluator = Evaluator(self._config, self._folder, self._supervisor)
            about = self._evaluator.about
            self.num_train, self.num_parameters = about["num_train"], about["num_parameters"]
            self.best_possible = about["best_possible"]
        return self._evaluator

    def _row(self, number: int) -> dict[str, Any]:
        paths = [state_path(self._folder / "snapshots", float(number), part) for part in self._parts]
        return self._started_evaluator().row(paths, time.perf_counter() - self.begun)


class Evaluator:
    """The process that evaluates; see syncline/live/evaluation.py.

    Raises:
        RunFailed: it cannot be started, or failed; so do the methods.
    """

    def __init__(self, config: RunConfig, folder: Path, supervisor: Supervisor) -> None:
        environment = {"OMP_NUM_THREADS": str(config.threads)}
        job = Job(str(folder.absolute()), secret="", launcher="", cwd=str(Path.cwd()), environment=environment)
        self._folder = folder
        self._line = supervisor.evaluator(job)
        self.about = self._answer()

    def row(self, paths: list[Path], wall_s: float) -> dict[str, Any]:
        row: dict[str, Any] = self._ask("row", list(map(str, paths)), wall_s)
        return row

    def is_finite(self, paths: list[Path]) -> bool:
        return self._ask("is_finite", list(map(str, paths))) is True

    def close(self) -> None:
        with suppress(OSError):  # it is gone
            self._line.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for an answer
        self._line.close()

    def _ask(self, *request: Any) -> Any:
        with suppress(OSError):  # of which the answer tells
            self._line.sendall(json.dumps(request).encode())
        return self._answer()

    def _answer(self) -> Any:
        message = b""
        with suppress(ConnectionResetError):
            message = self._line.recv(MAX_MESSAGE_BYTES)
        if not message:
            raise first_failure(self._folder) or RunFailed("the process that evaluates was killed")
        return json.loads(message)


def num_parts(config: RunConfig) -> int:
    """Processes that keep parameters: the shards, all replicas, or the first member of a collective where all agree."""
    if config.strategy.replicas:
        return config.cluster.workers
    return config.cluster.shards if config.strategy.has_server else 1
