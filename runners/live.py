"""Real processes, on this machine or on several hosts.

Supervisors start them (agents.py, hosts.py); this process watches, evaluates (course.py) and writes the record.

If a part of the run is lost that the others cannot do without (a shard, a worker of BSP or DS-Sync), all of it begins
again from the last checkpoint. An error in a process ends the run, with the first one shown.
"""

import json
import queue
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runners.agents import Agents, Restart, RunFailed, ThisMachine, first_failure
from runners.display import say
from runners.hosts import Hosts
from runners.progress import Course, num_parts
from syncline.config import ConfigError, MultinodeConfig, RunConfig
from syncline.live.control import ControlServer, Message, Peer
from syncline.live.process import Job
from syncline.live.supervisor import Supervisor
from syncline.live.transport import Tls
from syncline.live.wire import make_secret
from syncline.progress import Progress, Totals, summary
from syncline.records.events import merge_events, read_events
from syncline.records.snapshots import latest
from syncline.records.spans import timeline_of
from syncline.records.store import FAILED, UNFINISHED, status
from syncline.records.time_use import TimeUse, time_use_of, time_use_of_collective
from syncline.records.writer import RecordWriter

STOP_S = 3.5  # for the shards to write their checkpoints when the run is stopped
LAST_WORDS_S = 0.5  # for a process that failed to write down why
ANSWER_S = 2.0  # for the members of a collective to say what they do


def can_go_on(config: RunConfig, folder: Path) -> bool:
    """A run that was broken off or failed lies there, with a checkpoint of every shard."""
    return status(folder) in (UNFINISHED, FAILED) and latest(folder / "checkpoint", num_parts(config)) is not None


def run_live(
    config: RunConfig,
    record: RecordWriter,
    on_evaluation: Callable[[Mapping[str, Any]], None],
    on_progress: Callable[[Progress], None],
    supervisor: Supervisor | None = None,
) -> dict[str, Any]:
    """Make a run of real processes; see `runners.one.run_one`.

    Args:
        supervisor: of this machine, if it was started before.

    Raises:
        ConfigError: a file that the config names is not there.
        RunFailed: a process failed, or the run was restarted too often.
        KeyboardInterrupt: the shards have written a checkpoint.
    """
    begun = time.perf_counter()
    for path in filter(None, (config.live.tls_cert, config.live.tls_key)):
        if not Path(path).is_file():
            raise ConfigError(f"runner.tls_cert and runner.tls_key must be PEM files, got {path!r}")
    folder = record.folder
    (folder / "log").mkdir(exist_ok=True)
    for note in (folder / "log").glob("failure-*.json"):
        note.unlink()
    with (
        supervisor or Supervisor() as own,
        closing(Course(config, record, on_evaluation, on_progress, begun, own)) as course,
    ):
        outcome, clock_error_s = _make(config, record, course, own)
        ended_by = course.finish(outcome.ended_by)
    logs = sorted(folder.glob("events-*.arrow"))
    time_use = None
    if config.runner.events:
        merge_events(logs, folder / "events.arrow")
        time_use = _time_use(config, folder, outcome.totals.time_s)
    # Only now is the run whole: until here it could have gone on from its checkpoint.
    for log in logs:
        log.unlink()
    for name in ("checkpoint", "snapshots"):
        shutil.rmtree(folder / name, ignore_errors=True)
    made = summary(
        config,
        "live",
        outcome.totals,
        ended_by,
        course.curve,
        time_use,
        num_train=course.num_train,
        num_parameters=course.num_parameters,
        best_possible=course.best_possible,
        wall_s=time.perf_counter() - begun,
    )
    return made | {
        "start_s": course.start_s,
        "clock_error_s": clock_error_s,
        "parameters": [f"parameters-{part}.safetensors" for part in range(num_parts(config))],
    }


def _time_use(config: RunConfig, folder: Path, end_s: float) -> TimeUse:
    """What the log tells of where the time went."""
    events = read_events(folder / "events.arrow")
    timeline, strategy = timeline_of(events, end_s, is_logged_late=True), config.strategy
    if strategy.has_server:
        return time_use_of(timeline)
    later = int(strategy.averages_first)  # the exchange that follows a gradient is the next step's
    return time_use_of_collective(timeline, events, lambda step: strategy.groups(step + later, config.cluster.workers))


def _make(config: RunConfig, record: RecordWriter, course: Course, supervisor: Supervisor) -> "tuple[_Outcome, float]":
    """All attempts. Returns also the largest error with which a process knew the launcher's clock."""
    agents: Agents
    if isinstance(config.runner, MultinodeConfig):
        agents = Hosts(config, record.folder)
    else:
        agents = ThisMachine(config, supervisor)
    restarts, clock_error_s = 0, 0.0
    try:
        while True:
            agents.prepare()
            attempt = _Attempt(config, record.folder, course, agents, restarts)
            try:
                return attempt.run(), max(clock_error_s, attempt.clock_error_s)
            except Restart as why:
                restarts += 1
                if restarts > config.live.max_restarts:
                    raise RunFailed(f"{why}; the run was restarted {restarts - 1} times before") from None
                record.restarted()
                say(f"{why}; the run begins again from its last checkpoint")
            finally:
                attempt.end()
                clock_error_s = max(clock_error_s, attempt.clock_error_s)
    finally:
        agents.close()


@dataclass(frozen=True, slots=True)
class _Outcome:
    ended_by: str
    totals: Totals


class _Attempt:
    """All processes of the run, from their start to their end."""

    def __init__(self, config: RunConfig, folder: Path, course: Course, agents: Agents, number: int) -> None:
        runner = config.live
        self._config, self._folder, self._course, self._agents = config, folder, course, agents
        tls = Tls(runner.tls_cert, runner.tls_key) if runner.tls_cert else None
        self._secret = folder / f"secret-{number}"
        secret = make_secret(self._secret)
        try:
            self._headquarters = ControlServer(agents.listen, secret, tls, runner.leave_s)
        except OSError as error:
            raise RunFailed(f"the launcher cannot listen at {agents.listen} ({error.strerror})") from None
        resume = latest(folder / "checkpoint", num_parts(config))
        course.go_back(resume)
        self._num_parts = num_parts(config)
        self._num_leaders = config.cluster.shards if config.strategy.has_server else 1
        agents.start(
            Job(
                folder=str(folder.absolute()),
                secret=self._secret.name,
                launcher=self._headquarters.address,
                cwd=str(Path.cwd()),
                resume=resume,
                environment={"OMP_NUM_THREADS": str(config.threads), "WORLD_SIZE": str(config.cluster.workers)},
            )
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
        self._unreachable: dict[int, str] = {}  # worker -> what it could not reach
        self.clock_error_s = 0.0  # the largest with which a process knows the launcher's clock

    def run(self) -> _Outcome:
        """Until all who keep parameters have said that the run is over.

        Raises:
            RunFailed, Restart, KeyboardInterrupt.
        """
        deadline = time.monotonic() + self._config.live.start_timeout_s
        try:
            while len(self._done) < self._num_parts:
                try:
                    peer, message = self._headquarters.messages.get(timeout=0.1)
                except queue.Empty:
                    self._course.tick()
                    self._watch()
                    if (why := self._agents.check()) is not None:
                        raise self._cause(why) from None
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
        self._agents.end(STOP_S if len(self._done) == self._num_parts else 0)
        self._headquarters.close()
        self._secret.unlink(missing_ok=True)

    def _watch(self) -> None:
        """Name a leader that is silent: a shard, or what all members of a collective wait for."""
        runner, now = self._config.live, time.monotonic()
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
            say(f"worker {index}{self._agents.where('worker', index)}: {answers.get(index, 'does not answer')}")

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
        elif kind == "unreachable":
            self._unreachable[peer.index] = message["why"]
        elif kind == "stopped":
            self._stopped.add(peer.index)
        elif kind == "lost" and not peer.is_done and (peer.role != "worker" or not self._config.strategy.has_server):
            raise self._cause(f"{peer} (process {peer.pid}{self._agents.where(peer.role, peer.index)}) was lost")

    def _met(self, peer: Peer) -> None:
        with (self._folder / "log" / "processes.jsonl").open("a") as file:
            print(json.dumps({"role": peer.role, "index": peer.index, "pid": peer.pid, **peer.about}), file=file)
        self.clock_error_s = max(self.clock_error_s, peer.about.get("clock_error_s", 0.0))
        is_leader = peer.role == "shard" or (not self._config.strategy.has_server and peer.index == 0)
        if peer.role == "worker":
            self._workers[peer.index] = peer
        if is_leader:
            self._leaders[peer.index] = peer
            self._heard[peer.index] = time.monotonic()
        if len(self._leaders) == self._num_leaders:
            addresses = [self._leaders[leader].address for leader in sorted(self._leaders)]
            for worker in list(self._workers.values()) if is_leader else [peer]:
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
        while (failure := first_failure(self._folder)) is None and time.monotonic() < ends:
            time.sleep(0.05)
        return failure or (Restart(otherwise) if self._is_begun else RunFailed(otherwise))

    def _who_is_missing(self) -> str:
        shards = range(self._num_leaders if self._config.strategy.has_server else 0)
        workers = range(self._config.cluster.workers)
        missing = [("shard", shard) for shard in shards if shard not in self._leaders]
        missing += [("worker", worker) for worker in workers if worker not in self._workers]
        if not missing and self._unreachable:
            worker, why = next(iter(self._unreachable.items()))
            return f"worker {worker}{self._agents.where('worker', worker)} cannot reach {why}"
        names = ", ".join(f"{role} {index}{self._agents.where(role, index)}" for role, index in missing)
        return f"{names or 'somebody'} did not come within {self._config.live.start_timeout_s:g} s"

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
