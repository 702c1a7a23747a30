"""A run of real processes, computed again from its event log in one process.

The log says in which order pushes came to each shard, who joined and left, and when. The strategies are asked again,
and must answer as the log says; every gradient is computed again at the versions that the worker had been granted. On a
CPU the final parameters are equal in every bit: the proof that the log is complete.
"""

import math
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from syncline.config import RunConfig
from syncline.learning.server import Gradient, Version
from syncline.monitor import OnEvaluation, OnProgress, RunMonitor, evaluation_row
from syncline.progress import Totals
from syncline.records.events import Row, read_events
from syncline.records.snapshots import read_state
from syncline.records.store import RecordError, read_summary
from syncline.simulation.run import Learning, build_learning
from syncline.strategies.protocol import (
    Apply,
    Command,
    Discard,
    Event,
    Grant,
    Hold,
    Interrupt,
    PushArrived,
    Repeat,
    TimerFired,
    WaitFor,
)
from syncline.strategies.protocol import WorkerJoined as Joined
from syncline.strategies.protocol import WorkerLeft as Left

COMPUTED = ("started", "computed", "delayed", "dropped")  # what workers did: follows from the rest
ANSWERS = ("applied", "discarded", "held", "granted", "repeated", "interrupted", "waits_for")


class ReplayError(RecordError):
    """The log does not say what the strategies do: it is broken, or of another version of them."""


def replay(
    config: RunConfig,
    source: RunConfig,
    folder: Path,
    on_evaluation: OnEvaluation,
    on_progress: OnProgress,
) -> dict[str, Any]:
    """Compute the run `source` again, whose record lies in `folder`.

    Returns:
        The summary, with `replay`: gradients computed again, the largest difference of a final parameter or buffer, and
        whether all are equal in every bit.

    Raises:
        ReplayError: the log contradicts the strategies. RecordError: the record is no whole one of a live run.
    """
    monitor = RunMonitor(config, on_evaluation, on_progress)
    torch.set_num_threads(source.threads)
    recorded = read_summary(folder)
    if recorded["engine"] != "live" or not source.strategy.has_server:
        raise RecordError(f"{folder}: only a run of real processes through a parameter server can be replayed")
    learning = build_learning(source)
    again = _Replay(source, learning, read_events(folder / "events.arrow"))
    monitor.describe(learning.num_train, learning.num_parameters, learning.best_possible)
    for done in again.steps():
        if monitor.is_report_due:
            totals = again.totals
            monitor.report(
                time_s=totals.time_s,
                updates=totals.updates,
                samples=totals.samples,
                loss=totals.loss,
                count=totals.count,
                fraction=done,
            )
    totals = again.totals
    states = [read_state(folder / f"parameters-{shard}.safetensors")[0] for shard in range(source.cluster.shards)]
    current = [shard.current for shard in learning.shards]
    pairs = [(state["weights"], shard.weights) for state, shard in zip(states, current, strict=True)]
    pairs.append((states[0]["buffers"], current[0].buffers))
    row = evaluation_row(
        totals.time_s,
        totals.updates,
        totals.samples,
        learning.num_train,
        learning.evaluator(*learning.current()[:2]),
        train_loss=totals.loss,
        learning_rate=learning.shards[0].rate(totals.samples, totals.updates),
        wall_s=monitor.wall_s,
    )
    monitor.add(row)
    return monitor.summary("replay", totals, recorded["ended_by"], None) | {
        "max_lead": recorded["max_lead"],
        "replay": {
            "of": recorded["identity"],
            "gradients": again.num_gradients,
            "equal": all(torch.equal(theirs, ours.cpu()) for theirs, ours in pairs),
            "largest_difference": max(float((a - b.cpu()).abs().max()) for a, b in pairs if a.numel()),
        },
    }


class _Replay:
    def __init__(self, config: RunConfig, learning: Learning, log: pa.Table) -> None:
        self.totals = Totals(config.cluster.workers)
        self.totals.begin(config.strategy.first_count)
        self.num_gradients = 0
        self._config, self._shards, self._workers = config, learning.shards, learning.learners
        self._strategies = [config.strategy.start(config.cluster.workers) for _ in learning.shards]
        self._rows = list[Row]()
        # (worker, iteration) -> the version of each block that its gradient was computed at, where a rule chose them
        self._pulled: dict[tuple[int, int], list[int]] = {}
        # (worker, shard) -> the blocks it was sent since the one in use
        self._sent: defaultdict[tuple[int, int], dict[int, Version]] = defaultdict(dict)
        for row in _rows(log):
            if row.kind == "pulled":
                self._pulled[row.worker, int(row.value)] = row.block_versions
            elif row.kind not in COMPUTED:
                self._rows.append(row)
        for part in self._shards:
            part.extra_versions = math.inf if self._pulled else 0  # blocks that were sent hold versions, too
        # What each shard's log says next, for what its strategy commands to be compared with.
        self._answers: list[deque[Row]] = [deque() for _ in learning.shards]
        for row in self._rows:
            if _is_answer(row):
                self._answers[row.shard].append(row)
        self._updates = [0] * len(self._shards)
        self._samples = [0] * len(self._shards)
        self._pending: list[dict[int, tuple[int, int, Gradient]]] = [{} for _ in learning.shards]
        self._gradients: dict[tuple[int, int], Gradient] = {}  # (worker, iteration) -> not yet come to every shard
        self._losses: dict[tuple[int, int], float] = {}
        self._come: defaultdict[tuple[int, int], int] = defaultdict(int)  # shards that it has come to

    def steps(self) -> Iterator[float]:
        """One event after the other; yields the fraction that is done."""
        for worker in range(self._config.cluster.workers):
            for shard in range(len(self._shards)):
                self._send(worker, shard)
        for number, row in enumerate(self._rows):
            event: Event
            if row.kind == "pushed":
                event = self._pushed(row)
            elif row.kind == "joined":
                event = Joined(row.at, row.worker)
            elif row.kind == "left":
                event = Left(row.at, row.worker)
            elif row.kind == "timer":
                event = TimerFired(row.at)
            elif row.kind == "granted" and row.because == "resumed":
                self._send(row.worker, row.shard)
                continue
            else:
                continue  # an answer, compared when it is given
            self._obey(row, self._strategies[row.shard].handle(event))
            self.totals.time_s = row.at
            self.totals.updates, self.totals.samples = min(self._updates), min(self._samples)
            yield (number + 1) / len(self._rows)
        for answers in self._answers:
            if answers:
                raise ReplayError(f"at {answers[0].at:.6f} s the log says {answers[0].kind}, which no strategy said")

    def _pushed(self, row: Row) -> PushArrived:
        key = row.worker, int(row.value)
        if key not in self._gradients:
            for shard, version in enumerate(self._pulled.get(key, ())):
                self._take(row.worker, shard, version)
            self._workers.seek(*key)
            self._losses[key], self._gradients[key] = self._workers.compute(row.worker)
            self.num_gradients += 1
            self.totals.loss_sum += self._losses[key]
            self.totals.loss_count += 1
        versions = self._pulled.get(key)
        computed_at = row.version if versions is None else versions[row.shard]
        self._pending[row.shard][row.push] = row.worker, computed_at, self._gradients[key]
        event = PushArrived(row.at, row.push, row.worker, row.version, self._losses[key])
        self._come[key] += 1
        if self._come[key] == len(self._shards):
            del self._gradients[key], self._losses[key], self._come[key]
        return event

    def _send(self, worker: int, shard: int) -> None:
        """The shard's current version leaves for the worker."""
        if self._pulled:
            sent = self._sent[worker, shard]
            version = self._updates[shard]
            if version not in sent:
                sent[version] = self._workers.pin(shard)
        else:
            self._workers.receive(worker, shard)

    def _take(self, worker: int, shard: int, version: int) -> None:
        """The worker uses this version of the block; older ones will not be used any more."""
        sent = self._sent[worker, shard]
        if version in sent:
            self._workers.take(worker, shard, sent.pop(version))
        for older in [number for number in sent if number < version]:
            self._workers.unpin(shard, sent.pop(older))

    def _obey(self, cause: Row, commands: list[Command]) -> None:
        shard = cause.shard
        for command in commands:
            if not self._answers[shard]:
                return  # the run ended in the middle of this answer
            if isinstance(command, Apply):
                for push in command.pushes:
                    self._compare(shard, "applied", self._pending[shard][push][0], push, command.because)
                self._apply(shard, command)
            elif isinstance(command, Grant):
                self._compare(shard, "granted", command.worker, -1, command.because)
                self._send(command.worker, shard)
            elif isinstance(command, Hold):
                self._compare(shard, "held", command.worker, -1, command.because)
            elif isinstance(command, Repeat):
                self._compare(shard, "repeated", command.worker, -1, command.because)
            elif isinstance(command, Interrupt):
                self._compare(shard, "interrupted", command.worker, -1, command.because)
            elif isinstance(command, WaitFor):
                self._compare(shard, "waits_for", -1, -1, command.because)
                self.totals.waits_for.append((cause.at, self._updates[shard], command.count))
            elif isinstance(command, Discard):
                worker, _, gradient = self._pending[shard].pop(command.push)
                self._compare(shard, "discarded", worker, command.push, command.because)
                self._workers.release(gradient)
                self.totals.discarded_by_worker[worker] += shard == 0

    def _compare(self, shard: int, kind: str, worker: int, push: int, because: str) -> None:
        row = self._answers[shard].popleft()
        if (row.kind, row.worker, row.push, row.because) != (kind, worker, push, because):
            raise ReplayError(
                f"at {row.at:.6f} s shard {shard} of the log says {row.kind} worker {row.worker} push {row.push} "
                f"({row.because}); the strategy says {kind} worker {worker} push {push} ({because})"
            )

    def _apply(self, shard: int, command: Apply) -> None:
        used = [self._pending[shard].pop(push) for push in command.pushes]
        gradients = [gradient for _, _, gradient in used]
        samples, updates = self._samples[shard], self._updates[shard]
        self._shards[shard].apply(gradients, command.scale, samples, updates, is_sum=command.is_sum)
        for worker, version, gradient in used:
            stale = self._updates[shard] - version
            self.totals.staleness[stale] = self.totals.staleness.get(stale, 0) + 1
            self.totals.used_by_worker[worker] += shard == 0
            self._workers.release(gradient)
        self._updates[shard] += 1
        self._samples[shard] += len(used) * self._config.batch_size


def _is_answer(row: Row) -> bool:
    return row.kind in ANSWERS and row.because != "resumed"


def _rows(log: pa.Table) -> Iterator[Row]:
    return map(Row._make, zip(*(column.to_pylist() for column in log.columns), strict=True))
