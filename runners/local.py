"""Real processes on this machine: torchrun starts them, this process watches, evaluates and writes the record.

If a part of the run is killed that the others cannot do without (a shard, a worker of BSP or DS-Sync), all of it begins
again from the last checkpoint. An error in a process ends the run, with the first one shown.
"""

import json
import os
import queue
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runners.display import say
from syncline.config import ConfigError, RunConfig
from syncline.course import Curve, Limits, Progress, Totals, summary
from syncline.live.control import Headquarters, Message, Peer
from syncline.live.process import FOLDER, HEADQUARTERS, LISTEN, NUM_SHARDS, RESUME
from syncline.live.transport import Tls, default_address
from syncline.live.wire import make_secret
from syncline.records.events import merge_events
from syncline.records.snapshots import latest, numbers, read_state, state_path
from syncline.records.store import FAILED, UNFINISHED, RecordWriter, status

STOP_S = 3.5  # for the shards to write their checkpoints when the run is stopped
LAST_WORDS_S = 0.5  # for a process that failed to write down why
ANSWER_S = 2.0  # for the members of a collective to say what they do
KEPT_LINES = 20  # of a process's output, in an error


class RunFailed(ValueError):
    """A process of the run failed; the message tells which, and why."""


class Restart(Exception):
    """A part was lost that the others cannot do without; the run can begin again from its checkpoint."""


def can_go_on(config: RunConfig, folder: Path) -> bool:
    """A run that was broken off or failed lies there, with a checkpoint of every shard."""
    return status(folder) in (UNFINISHED, FAILED) and latest(folder / "checkpoint", _num_parts(config)) is not None


def run_local(
    config: RunConfig,
    record: RecordWriter,
    on_evaluation: Callable[[Mapping[str, Any]], None],
    on_progress: Callable[[Progress], None],
) -> dict[str, Any]:
    """Make a run of real processes; see `runners.one.run_one`.

    Raises:
        ConfigError: a file that the config names is not there.
        RunFailed: a process failed, or the run was restarted too often.
        KeyboardInterrupt: the shards have written a checkpoint.
    """
    begun = time.perf_counter()
    for path in filter(None, (config.runner.tls_cert, config.runner.tls_key)):
        if not Path(path).is_file():
            raise ConfigError(f"runner.tls_cert and runner.tls_key must be PEM files, got {path!r}")
    folder = record.folder
    (folder / "log").mkdir(exist_ok=True)
    for note in (folder / "log").glob("failure-*.json"):
        note.unlink()
    course = _Course(config, record, on_evaluation, on_progress, begun)
    restarts = 0
    while True:
        attempt = _Attempt(config, folder, course)
        try:
            outcome = attempt.run()
            break
        except Restart as why:
            restarts += 1
            if restarts > config.runner.max_restarts:
                raise RunFailed(f"{why}; the run was restarted {restarts - 1} times before") from None
            record.restarted()
            say(f"{why}; the run begins again from its last checkpoint")
        finally:
            attempt.end()
    course.finish(outcome.ended_by)
    logs = sorted(folder.glob("events-*.arrow"))
    if config.runner.events:
        merge_events(logs, folder / "events.arrow")
    # Only now is the run whole: until here it could have gone on from its checkpoint.
    for log in logs:
        log.unlink()
    for name in ("checkpoint", "snapshots"):
        shutil.rmtree(folder / name, ignore_errors=True)
    made = summary(
        config,
        "live",
        outcome.totals,
        outcome.ended_by,
        course.curve,
        num_train=course.num_train,
        num_parameters=course.num_parameters,
        best_possible=course.best_possible,
        wall_s=time.perf_counter() - begun,
    )
    return made | {
        "start_s": course.start_s,
        "parameters": [f"parameters-{part}.safetensors" for part in range(_num_parts(config))],
    }


@dataclass(frozen=True, slots=True)
class _Outcome:
    ended_by: str
    totals: Totals


class _Attempt:
    """All processes of the run, from their start to their end."""

    def __init__(self, config: RunConfig, folder: Path, course: "_Course") -> None:
        runner = config.runner
        self._config, self._folder, self._course = config, folder, course
        tls = Tls(runner.tls_cert, runner.tls_key) if runner.tls_cert else None
        listen = {"auto": default_address(), "unix": "unix:", "tcp": "tcp:127.0.0.1:0"}[runner.transport]
        self._headquarters = Headquarters(listen, make_secret(folder / "secret"), tls)
        self._resume = latest(folder / "checkpoint", _num_parts(config))
        course.go_back(self._resume)
        self._num_parts = _num_parts(config)
        num_shards = config.cluster.shards if config.strategy.has_server else 0
        self._num_leaders = num_shards or 1
        num_processes = config.cluster.workers + num_shards
        environment = {
            FOLDER: str(folder.absolute()),
            HEADQUARTERS: self._headquarters.address,
            LISTEN: listen,
            **({NUM_SHARDS: str(num_shards)} if num_shards else {}),
            **({} if self._resume is None else {RESUME: str(self._resume)}),
            "OMP_NUM_THREADS": str(config.threads),
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }
        arguments = [
            "--nnodes=1",
            f"--nproc-per-node={num_processes}",
            "--rdzv-backend=c10d",
            "--rdzv-endpoint=localhost:0",
            f"--rdzv-id={secrets.token_hex(8)}",
            "--max-restarts=0",
            f"--log-dir={folder.absolute() / 'log' / 'torchrun'}",
        ]
        module = ["-m", "syncline.live.process"]
        with (folder / "log" / "torchrun.txt").open("ab") as output:
            self._agent = subprocess.Popen(
                [sys.executable, *module, "agent", *arguments, *module, "rank"],
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # a Ctrl-C is for the launcher alone, which ends them in good order
            )
        # The leaders are told what to do: the shards, or the first member of a collective, who tells the others.
        self._leaders: dict[int, Peer] = {}
        self._workers: dict[int, Peer] = {}  # all members of a collective among them
        self._ready: set[int] = set()
        self._done: dict[int, Message] = {}
        self._is_begun = False
        self._stopped: set[int] = set()
        self._heard: dict[int, float] = {}  # leader -> when it last said something, monotonic
        self._warned: set[int] = set()

    def run(self) -> _Outcome:
        """Until all who keep parameters have said that the run is over.

        Raises:
            RunFailed, Restart, KeyboardInterrupt.
        """
        deadline = time.monotonic() + self._config.runner.start_timeout_s
        try:
            while len(self._done) < self._num_parts:
                try:
                    peer, message = self._headquarters.messages.get(timeout=0.1)
                except queue.Empty:
                    self._course.tick()
                    self._watch()
                    if self._agent.poll() is not None:
                        raise self._cause("torchrun ended") from None
                    if not self._is_begun and time.monotonic() > deadline:
                        raise self._cause(self._who_is_missing()) from None
                    if self._course.curve.reached_s is not None:
                        self._tell_leaders("end", why="target")
                    continue
                self._hear(peer, message)
        except KeyboardInterrupt:
            self._stop()
            raise
        return self._outcome()

    def end(self) -> None:
        """No process is left, in whatever state it was."""
        ends = time.monotonic() + (STOP_S if len(self._done) == self._num_parts else 0)
        while self._agent.poll() is None and time.monotonic() < ends:
            time.sleep(0.01)
        self._agent.kill()  # its processes die with it, and theirs with them
        self._agent.wait()
        self._headquarters.close()
        (self._folder / "secret").unlink(missing_ok=True)
        shutil.rmtree(self._folder / "log" / "torchrun", ignore_errors=True)  # empty: our processes write elsewhere

    def _watch(self) -> None:
        """Name a leader that is silent: a shard, or what all members of a collective wait for."""
        runner, now = self._config.runner, time.monotonic()
        for index, then in self._heard.items():
            silent = now - then
            if not self._is_begun or index in self._done or silent < min(runner.hang_s, runner.leave_s):
                continue
            who = f"shard {index}" if self._config.strategy.has_server else "the collective"
            if silent >= runner.leave_s:
                raise Restart(f"{who} was silent for {silent:.1f} s")
            if index in self._warned:
                continue
            self._warned.add(index)
            say(f"{who} is silent for {silent:.1f} s")
            if not self._config.strategy.has_server:
                self._ask_where()

    def _ask_where(self) -> None:
        """What each member of the collective does; a stopped one does not answer."""
        members = self._workers
        for member in members.values():
            member.tell("where")
        answers: dict[int, str] = {}
        ends = time.monotonic() + ANSWER_S
        while len(answers) < len(members) and (left := ends - time.monotonic()) > 0:
            try:
                peer, message = self._headquarters.messages.get(timeout=left)
            except queue.Empty:
                break
            if message["kind"] == "here":
                answers[peer.index] = message["doing"]
            else:
                self._hear(peer, message)
        for index in sorted(members):
            say(f"worker {index}: {answers.get(index, 'does not answer')}")

    def _hear(self, peer: Peer, message: Message) -> None:
        kind = message["kind"]
        if self._leaders.get(peer.index) is peer:
            self._heard[peer.index] = time.monotonic()
            self._warned.discard(peer.index)
        if kind == "hello":
            self._met(peer)
        elif kind == "ready":
            self._ready.add(peer.index)
            if len(self._ready) == self._num_leaders:
                self._is_begun = True
                if not self._course.start_s:
                    self._course.start_s = time.perf_counter() - self._course.begun
                self._tell_leaders("begin", zero_s=time.monotonic())
        elif kind == "progress":
            self._course.progressed(peer.index, message)
        elif kind == "snapshot":
            self._course.snapshot_written(peer.index, message["number"])
        elif kind == "warning":
            if peer.index == 0:
                say(f"{message['at']:.1f} s: {message['text']}")
        elif kind == "restart":
            raise self._cause(message["why"])
        elif kind == "done":
            peer.is_done = True
            if self._keeps(peer):
                self._done[peer.index] = message
        elif kind == "stopped":
            self._stopped.add(peer.index)
        elif kind == "lost" and not peer.is_done and (peer.role != "worker" or not self._config.strategy.has_server):
            raise self._cause(f"{peer} (process {peer.pid}) was lost")

    def _met(self, peer: Peer) -> None:
        with (self._folder / "log" / "processes.jsonl").open("a") as file:
            print(json.dumps({"role": peer.role, "index": peer.index, "pid": peer.pid}), file=file)
        has_server = self._config.strategy.has_server
        if peer.role == "worker":
            self._workers[peer.index] = peer
        if peer.role == "shard" or (not has_server and peer.index == 0):
            self._leaders[peer.index] = peer
            self._heard[peer.index] = time.monotonic()
        if has_server and len(self._leaders) == self._num_leaders:
            addresses = [self._leaders[shard].address for shard in sorted(self._leaders)]
            for worker in list(self._workers.values()) if peer.role != "worker" else [peer]:
                worker.tell("addresses", addresses=addresses)

    def _keeps(self, peer: Peer) -> bool:
        """It writes a part of every state."""
        return peer.index < self._num_parts and (peer.role == "shard" or not self._config.strategy.has_server)

    def _tell_leaders(self, kind: str, **content: Any) -> None:
        for leader in self._leaders.values():
            leader.tell(kind, **content)

    def _stop(self) -> None:
        """Ask for checkpoints, but not for long."""
        self._tell_leaders("stop")
        ends = time.monotonic() + STOP_S
        peers = [*self._leaders.values(), *self._workers.values()]
        expected = {peer.index for peer in peers if self._keeps(peer)}
        while not expected <= self._stopped and (left := ends - time.monotonic()) > 0:
            try:
                peer, message = self._headquarters.messages.get(timeout=left)
            except queue.Empty:
                return
            if message["kind"] in ("stopped", "done", "lost") and self._keeps(peer):
                self._stopped.add(peer.index)

    def _cause(self, otherwise: str) -> Exception:
        """Why the run cannot go on: the first error that a process wrote down, or else that it was lost."""
        ends = time.monotonic() + LAST_WORDS_S
        while not (notes := list((self._folder / "log").glob("failure-*.json"))) and time.monotonic() < ends:
            time.sleep(0.05)
        if not notes:
            if self._is_begun:
                return Restart(otherwise)
            return RunFailed(f"{otherwise}\n{_tail(self._folder / 'log' / 'torchrun.txt')}")
        first = min((json.loads(note.read_text()) for note in notes), key=lambda note: float(note["at"]))
        trace = f"\n{first['trace']}" if first["trace"] else ""
        return RunFailed(f"{first['role']} {first['index']}: {first['error']}{trace}")

    def _who_is_missing(self) -> str:
        shards = range(self._num_leaders if self._config.strategy.has_server else 0)
        missing = [f"shard {shard}" for shard in shards if shard not in self._leaders]
        missing += [f"worker {worker}" for worker in range(self._config.cluster.workers) if worker not in self._workers]
        return f"{', '.join(missing) or 'somebody'} did not come within {self._config.runner.start_timeout_s:g} s"

    def _outcome(self) -> _Outcome:
        """The leaders' totals as one: the first one's, but for what the one furthest behind decides."""
        totals = [Totals.from_state(self._done[leader]["totals"]) for leader in range(self._num_leaders)]
        whole = totals[0]
        for other in totals[1:]:
            for stale, count in other.staleness.items():
                whole.staleness[stale] = whole.staleness.get(stale, 0) + count
        whole.time_s = max(part.time_s for part in totals)
        whole.updates = min(part.updates for part in totals)
        whole.samples = min(part.samples for part in totals)
        reasons = [self._done[shard]["ended_by"] for shard in sorted(self._done)]
        return _Outcome("diverged" if "diverged" in reasons else reasons[0], whole)


class _Course:
    """The curve and the progress of a run: what the shards leave on disk is evaluated, during the run or after it."""

    def __init__(
        self,
        config: RunConfig,
        record: RecordWriter,
        on_evaluation: Callable[[Mapping[str, Any]], None],
        on_progress: Callable[[Progress], None],
        begun: float,
    ) -> None:
        self.curve = Curve(config)
        self.start_s = 0.0  # from the launch to the beginning of the run's clock
        self.num_train = self.num_parameters = 0  # known when something was evaluated
        self.best_possible: Mapping[str, float] = {}  # likewise
        self._config, self._record, self._folder = config, record, record.folder
        self._on_evaluation, self._on_progress, self.begun = on_evaluation, on_progress, begun
        self._parts = range(_num_parts(config))
        self._num_leaders = config.cluster.shards if config.strategy.has_server else 1
        self._progress: dict[int, Message] = {}
        self._written: dict[int, set[int]] = {part: set() for part in self._parts}
        self._evaluated = 0  # snapshots
        self._evaluator: Any = None  # of live/evaluation.py, which imports torch
        self._waiting: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._rows: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._next_report = 0.0

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
        self._evaluated = len(kept)
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
        """Show how far the run is, and what was evaluated meanwhile."""
        while not self._rows.empty():
            row = self._rows.get()
            self.curve.add(row)
            self._on_evaluation(row)
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

    def finish(self, ended_by: str) -> None:
        """Evaluate what is left, and the last state unless it is worthless."""
        self._end_thread()
        self._start_evaluator()
        for number in self._whole():
            self._rows.put(self._row(number))
        self.tick()
        if ended_by != "diverged":
            row = self._evaluator.row([self._folder / f"parameters-{part}.safetensors" for part in self._parts], 0.0)
            row["wall_s"] = time.perf_counter() - self.begun
            if row["updates"] > self.curve.rows[-1]["updates"]:
                self._rows.put(row)
                self.tick()

    def _whole(self) -> list[int]:
        """Snapshots of which every part is there and that were not evaluated, in order; they are, from now on."""
        whole = sorted(set.intersection(*self._written.values()))[self._evaluated :]
        self._evaluated += len(whole)
        return whole

    def _evaluate_what_is_there(self) -> None:
        if self._config.runner.evaluate == "during":
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
        if sys.platform == "linux":  # a thread may give way on its own
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        while (number := self._waiting.get()) is not None:
            self._start_evaluator()
            self._rows.put(self._row(number))

    def _start_evaluator(self) -> None:
        if self._evaluator is None:
            from syncline.live.evaluation import SnapshotEvaluator  # imports torch

            self._evaluator = SnapshotEvaluator(self._config)
            self.num_train, self.num_parameters = self._evaluator.num_train, self._evaluator.num_parameters
            self.best_possible = self._evaluator.best_possible

    def _row(self, number: int) -> dict[str, Any]:
        paths = [state_path(self._folder / "snapshots", float(number), part) for part in self._parts]
        row: dict[str, Any] = self._evaluator.row(paths, time.perf_counter() - self.begun)
        return row


def _num_parts(config: RunConfig) -> int:
    """Processes that keep parameters: the shards, all replicas, or the first member of a collective where all agree."""
    if config.strategy.replicas:
        return config.cluster.workers
    return config.cluster.shards if config.strategy.has_server else 1


def _tail(path: Path) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-KEPT_LINES:])
