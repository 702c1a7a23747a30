"""A run of real processes, computed again from its event log in one process.

The log says in which order pushes came to each shard, who joined and left, and when. The strategies are asked again,
and must answer as the log says; every gradient is computed again at the versions that the worker had been granted. On a
CPU the final parameters are equal in every bit: the proof that the log is complete.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from syncline.assembly.device import configure_torch
from syncline.config import RunConfig
from syncline.learning.parameters import Gradient, Version
from syncline.monitor import OnEvaluation, OnProgress, RunMonitor
from syncline.progress import Limits, Totals
from syncline.records.events import read_events, rows_of
from syncline.records.rows import Row
from syncline.records.snapshots import read_state
from syncline.records.store import RecordError, check_file, read_summary
from syncline.server.shard import Shard
from syncline.simulation.peers import PeerReplicas
from syncline.simulation.replicas import Replicas
from syncline.simulation.run import RunObserver, ServerTraining, build_replicas, build_server_training
from syncline.strategies.protocol import Command, Grant

COMPUTED = ("started", "computed", "delayed", "dropped", "stale")  # what workers did: follows from the rest
ANSWERS = ("applied", "discarded", "held", "granted", "repeated", "interrupted", "waits_for")


class ReplayError(RecordError):
    """The log does not say what the strategies do: it is broken, or of another version of them."""


def replay(
    config: RunConfig, source: RunConfig, folder: Path, on_evaluation: OnEvaluation, on_progress: OnProgress
) -> dict[str, Any]:
    """Compute the run `source` again, whose record lies in `folder`.

    Returns:
        The summary, with `replay`: gradients computed again, the largest difference of a final parameter or buffer, and
        whether all are equal in every bit.

    Raises:
        ReplayError: the log contradicts the strategies. RecordError: the record is no whole one of a live run.
    """
    monitor = RunMonitor(config, on_evaluation, on_progress)
    configure_torch(source)
    recorded = read_summary(folder)
    if recorded["engine"] != "live" or source.strategy.collective is not None:
        what = "through a parameter server, or of asynchronous peers,"
        raise RecordError(f"{folder}: only a run of real processes {what} can be replayed")
    if source.strategy.interrupts and source.keeps_state_at_workers and source.cluster.shards > 1:
        what = "with several shards no log tells which of them had interrupted a gradient when it was computed"
        raise RecordError(f"{folder}: {what}, on which local.optimizer's state or compress.feedback depends")
    log = read_events(folder / "events.arrow")
    learning = build_server_training(source) if source.strategy.has_server else build_replicas(source)
    again: _Replay | _ReplayOfPeers
    if isinstance(learning, ServerTraining):
        again = _Replay(source, learning, log)
    else:
        assert isinstance(learning, PeerReplicas)
        again = _ReplayOfPeers(source, learning, log)
    observer = RunObserver(config, monitor, learning, learning.problem.flat.layout.size, None)
    for done in again.steps():
        if monitor.is_report_due:
            observer.report(again.totals, done)
    totals = again.totals
    pairs = _final_pairs(folder, learning)
    observer.evaluate(totals)
    return monitor.summary("replay", totals, recorded["ended_by"], None) | {
        "max_lead": recorded["max_lead"],
        "replay": {
            "of": recorded["identity"],
            "gradients": again.num_gradients,
            "equal": all(torch.equal(theirs, ours.cpu()) for theirs, ours in pairs),
            "largest_difference": max(float((a - b.cpu()).abs().max()) for a, b in pairs if a.numel()),
        },
    }


def _final_pairs(folder: Path, learning: ServerTraining | Replicas) -> list[tuple[Tensor, Tensor]]:
    """The weights of each shard or replica, and the buffers, at the end: those of the record, and ours.

    Raises:
        RecordError: a file is missing, or is not as it was when the run finished.
    """
    ours = learning.final_states()
    paths = [folder / f"parameters-{part}.safetensors" for part in range(len(ours))]
    for path in paths:
        check_file(path)
    both = list(zip((read_state(path)[0] for path in paths), ours, strict=True))
    with_buffers = both if isinstance(learning, Replicas) else both[:1]  # the first shard's are all there are
    return [
        *((state["weights"], own["weights"]) for state, own in both),
        *((state["buffers"], own["buffers"]) for state, own in with_buffers),
    ]


class _Replay:
    """The shards of the run, fed with the events of its log."""

    def __init__(self, config: RunConfig, learning: ServerTraining, log: pa.Table) -> None:
        self.num_gradients = 0
        self.time_s = 0.0  # of the last event
        self._config, self._worker_gradients = config, learning.worker_gradients
        self._overlap = config.local.overlap
        self._events = list[Row]()  # what happened at the shards
        # (worker, iteration) -> the version of each block that its gradient was computed at, where a rule chose them
        self._pulled: dict[tuple[int, int], Sequence[int]] = {}
        # (worker, shard) -> the blocks it was sent since the one in use, by version
        self._sent: defaultdict[tuple[int, int], dict[int, Version]] = defaultdict(dict)
        # worker -> its pushes that were under way when it was interrupted
        self._stale: defaultdict[int, deque[Row]] = defaultdict(deque)
        self._resumed: set[tuple[int, float]] = set()  # (shard, time) at which the run continued from a checkpoint
        answers: list[deque[Row]] = [deque() for _ in learning.shards]
        for row in rows_of(log):
            if row.kind == "stale" and config.keeps_state_at_workers:
                self._stale[row.worker].append(row)
            if row.kind == "pulled":
                self._pulled[row.worker, int(row.value)] = row.versions
            elif row.kind in ANSWERS:
                answers[row.shard].append(row)
            elif row.kind not in COMPUTED:
                self._events.append(row)
        self._answers = answers
        self._shards = [
            Shard(
                number,
                config.strategy.start(config.cluster.workers),
                num_workers=config.cluster.workers,
                batch_size=config.batch_size,
                limits=Limits.of(config, learning.problem.num_train),
                parameters=part,
                log=self._compare,
                first_count=config.strategy.first_count,
                rounds=config.rounds(learning.problem.num_train),
            )
            for number, part in enumerate(learning.shards)
        ]
        # (worker, iteration) -> loss, gradient, and at how many shards it has not arrived yet
        self._gradients: dict[tuple[int, int], tuple[float, Gradient, int]] = {}
        # worker -> shard -> number of the push that follows the last one that has arrived there
        self._next = [[0] * len(learning.shards) for _ in range(config.cluster.workers)]
        self._kept = [learning.worker_gradients.kept(worker) for worker in range(config.cluster.workers)]
        self._computed: dict[int, int] = {}  # worker -> number of the last push of its process
        # worker -> number of the push that it computes again for the shards that lack it, before it takes other blocks
        self._again: dict[int, int] = {}
        self._loss_sum, self._loss_count = 0.0, 0

    @property
    def totals(self) -> Totals:
        """Of the run so far."""
        totals = Totals.of_shards([shard.totals for shard in self._shards])
        totals.time_s, totals.loss_sum, totals.loss_count = self.time_s, self._loss_sum, self._loss_count
        return totals

    def steps(self) -> Iterator[float]:
        """Feed one event after another; yields the fraction that is done.

        Raises:
            ReplayError: a strategy answers otherwise than the log says.
        """
        for worker in range(self._config.cluster.workers):
            for shard in self._shards:
                shard.send(worker)
                self._grant(shard, worker)
        for shard in self._shards:
            self._carry_out(shard, shard.begin(0.0))
        for number, row in enumerate(self._events):
            self._feed(row)
            if row.kind != "resumed":
                self.time_s = row.at
                yield (number + 1) / len(self._events)
        for answers in self._answers:
            if answers:
                raise ReplayError(f"at {answers[0].at:.6f} s the log says {answers[0].kind}, which no strategy said")

    def _feed(self, row: Row) -> None:
        shard = self._shards[row.shard]
        if row.kind == "pushed":
            self._push(shard, row)
        elif row.kind == "joined":
            self._worker_gradients.restart(row.worker)
            self._computed.pop(row.worker, None)
            self._forget_again(row.worker)
            self._forget_sent(row.worker, row.shard)
            while (stale := self._stale[row.worker]) and stale[0].at <= row.at:
                stale.popleft()  # of the process before
            self._worker_gradients.connect(row.worker, row.shard)
            self._carry_out(shard, shard.join(row.at, row.worker))
        elif row.kind == "left":
            self._carry_out(shard, shard.leave(row.at, row.worker, row.because))
        elif row.kind == "timer":
            self._carry_out(shard, shard.fire_timer(row.at))
        else:
            assert row.kind == "resumed"
            self._resume(row.shard, row.at)
            self._computes_again(row.worker)
            self._forget_sent(row.worker, row.shard)
            shard.send(row.worker)
            if self._pulled:
                self._grant(shard, row.worker)
            else:
                self._worker_gradients.take(row.worker, row.shard)

    def _resume(self, shard: int, at: float) -> None:
        """All workers have connected to the shard again; what they keep, they have from the checkpoint."""
        if (shard, at) not in self._resumed:
            self._resumed.add((shard, at))
            for worker in range(self._config.cluster.workers):
                self._worker_gradients.connect(worker, shard)

    def _computes_again(self, worker: int) -> None:
        """The run has resumed: the worker computes again, at the blocks that it gets now, what a shard has missed."""
        if self._pulled:
            return
        self._forget_again(worker)
        is_even = min(self._next[worker]) == max(self._next[worker])
        if not is_even and not self._config.strategy.interrupts and not self._overlap:
            self._again[worker] = min(self._next[worker])
        for key in [key for key in self._gradients if key[0] == worker]:
            _, gradient, missing = self._gradients.pop(key)
            for _ in range(missing):
                gradient.release()
            if self._computed.get(worker) == key[1]:
                self._kept[worker].undo()

    def _forget_again(self, worker: int) -> None:
        """The worker's process has ended: it does not take what it was sent after the blocks of `_again`."""
        if self._again.pop(worker, None) is not None:
            for shard in range(len(self._shards)):
                self._take(worker, shard, self._shards[shard].version + 1)

    def _forget_sent(self, worker: int, shard: int) -> None:
        """A new connection to the shard: the worker is sent its block anew."""
        if self._overlap:
            self._take(worker, shard, self._shards[shard].version + 1)

    def _push(self, shard: Shard, row: Row) -> None:
        key = worker, iteration = row.worker, int(row.value)
        versions = self._pulled.get(key)
        loss, gradient, missing = self._gradients.get(key) or self._compute(worker, iteration, versions)
        if missing == 1:
            self._gradients.pop(key, None)
        else:
            self._gradients[key] = loss, gradient, missing - 1
        self._next[worker][row.shard] = iteration + 1
        if self._overlap:  # what it has when it pushes, the next gradient is computed at
            self._take(worker, row.shard, row.version)
        version = row.version if versions is None else versions[row.shard]
        self._carry_out(shard, shard.push(row.at, row.push, worker, version, row.version, iteration, loss, gradient))

    def _compute(self, worker: int, iteration: int, versions: Sequence[int] | None) -> tuple[float, Gradient, int]:
        """As the values of `_gradients`."""
        for shard, version in enumerate(versions or ()):
            self._take(worker, shard, version)
        self._worker_gradients.seek(worker, iteration)
        self._kept[worker].begin()
        self._computed[worker] = iteration
        self._worker_gradients.begin(worker)
        loss, gradient = self._worker_gradients.compute(worker)
        if versions is None and not self._overlap:
            self._again.pop(worker, None)
            for shard in range(len(self._shards)):
                if sent := self._sent[worker, shard]:
                    self._take(worker, shard, max(sent))
        self.num_gradients += 1
        self._loss_sum += loss
        self._loss_count += 1
        missing = sum(next_push <= iteration for next_push in self._next[worker])
        for _ in range(len(self._shards) - missing):
            gradient.release()
        return loss, gradient, missing

    def _send_stale(self, worker: int, version: int) -> None:
        """The worker's pushes before this version that came too late: they have changed what the worker keeps."""
        stale = self._stale[worker]
        while stale and stale[0].version < version:
            stale.popleft()
            self._worker_gradients.begin(worker)
            self._worker_gradients.compute(worker)[1].release()
            self.num_gradients += 1

    def _take(self, worker: int, shard: int, version: int) -> None:
        """The worker uses this version of the block; older ones will not be used any more."""
        sent = self._sent[worker, shard]
        if version in sent:
            self._worker_gradients.take(worker, shard, sent.pop(version))
        for older in [number for number in sent if number < version]:
            self._worker_gradients.unpin(shard, sent.pop(older))

    def _compare(self, ours: Row) -> None:
        """The log of the shards: what they write is in the log of the run, too."""
        if ours.kind not in ANSWERS:
            return
        answers = self._answers[ours.shard]
        theirs = answers.popleft() if answers else None
        if theirs is None or theirs._replace(at=ours.at) != ours:
            told = "nothing more" if theirs is None else f"{theirs.kind} {_words(theirs)}"
            raise ReplayError(
                f"at {ours.at:.6f} s shard {ours.shard} of the log says {told}; "
                f"the strategy says {ours.kind} {_words(ours)}"
            )

    def _carry_out(self, shard: Shard, commands: Iterable[Command]) -> None:
        for command in commands:
            if isinstance(command, Grant):  # what a worker does without one is in the log
                self._grant(shard, command.worker)

    def _grant(self, shard: Shard, worker: int) -> None:
        """The shard's current block is sent to the worker."""
        number, version = shard.number, shard.version
        sent = self._sent[worker, number]
        if self._pulled:
            if version not in sent:
                sent[version] = self._worker_gradients.pin(number, worker)
            return
        self._send_stale(worker, version)
        is_computing = self._overlap and worker in self._computed
        if is_computing or (worker in self._again and self._next[worker][number] > self._again[worker]):
            sent[version] = self._worker_gradients.pin(number, worker)
        else:
            self._worker_gradients.take(worker, number)


class _ReplayOfPeers:
    """The replicas of the run, each of which sees what happened to it in the order of its versions."""

    def __init__(self, config: RunConfig, learning: PeerReplicas, log: pa.Table) -> None:
        workers = config.cluster.workers
        self.totals, self.num_gradients = Totals(workers), 0
        self._batch_size, self._rounds = config.batch_size, config.rounds(learning.problem.num_train)
        self._learning, self._versions, self._read = learning, [0] * workers, [0] * workers
        # Of each replica: version, whether it has that before, and what happened; what is read is read after that.
        found: list[list[tuple[int, bool, Row]]] = [[] for _ in range(workers)]
        for row in rows_of(log):
            if row.kind in ("started", "applied"):
                found[row.worker].append((row.version, row.kind == "started", row))
            elif row.kind == "averaged":
                for worker, version in zip((row.worker, int(row.value)), row.versions, strict=True):
                    found[worker].append((version, False, row))
        self._to_come = [deque(sorted(rows, key=lambda each: each[:2])) for rows in found]

    def steps(self) -> Iterator[float]:
        """Feed what happened to one replica after the other, as far as their averagings allow; yields what is done.

        Raises:
            ReplayError: the log gives no order of what happened.
        """
        to_come, num = self._to_come, sum(map(len, self._to_come))
        waiting = list(range(len(to_come)))
        while waiting:
            worker = waiting.pop()
            while to_come[worker]:
                row = to_come[worker][0][-1]
                pair = [row.worker, int(row.value)] if row.kind == "averaged" else [worker]
                if any(not to_come[end] or to_come[end][0][-1] is not row for end in pair):
                    break
                waiting += [end for end in pair if end != worker]
                for end in pair:
                    version, is_read, _ = to_come[end].popleft()
                    self._check(end, version, is_read, row)
                self._feed(row)
                yield 1 - sum(map(len, to_come)) / num
        if left := [rows[0][-1] for rows in to_come if rows]:
            raise ReplayError(f"at {left[0].at:.6f} s what the log says of worker {left[0].worker} has no order")

    def _check(self, worker: int, version: int, is_read: bool, row: Row) -> None:
        self._versions[worker] += not is_read
        if version != self._versions[worker]:
            ours = f"worker {worker}'s replica has version {self._versions[worker]}"
            raise ReplayError(f"at {row.at:.6f} s the log says {row.kind} {_words(row)}; {ours}")

    def _feed(self, row: Row) -> None:
        worker, totals, learning = row.worker, self.totals, self._learning
        number = totals.used_by_worker[worker]
        if row.kind == "started":
            self._read[worker] = row.version
            learning.peers[worker].read()
            learning.begin(worker, number, row.at)
        elif row.kind == "averaged":
            totals.loss_sum += learning.computed(worker)
            totals.loss_count += 1
            self.num_gradients += 1
            learning.average(worker, int(row.value), row.version - 1 - self._read[worker])
        else:
            num_samples = self._batch_size * self._rounds.size(number)
            learning.peers[worker].step(num_samples)
            totals.add(worker, row.at, num_samples, row.version - 1 - self._read[worker])


def _words(row: Row) -> str:
    return f"worker {row.worker} push {row.push} version {row.version} ({row.because})"
