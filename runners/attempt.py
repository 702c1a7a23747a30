"""One attempt at a run of real processes: from their start until the run ends, or must restart from its checkpoint."""

import errno
import json
import os
import queue
import shutil
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runners.display import say
from runners.failures import Restart, RunFailed, first_failure
from runners.observer import LiveObserver
from runners.stop import NOTICE, StopRequested
from syncline.config import RunConfig
from syncline.live.checkpoints import newest_checkpoint, num_parts
from syncline.live.node.control import ControlServer, Lost, Peer, versions
from syncline.live.node.process import Job, new_job_name, new_secret
from syncline.live.node.ranks import Announcement, Ranks
from syncline.live.wire import control_messages as messages
from syncline.progress import Totals
from syncline.records.snapshots import read_values, state_path, stop_number
from syncline.records.store import ENDED, cannot_write, wanted_workers, write_file

STOP_S = 3.5  # for the checkpoints of a run that is stopped, beside the steps that a collective needs until then
STOP_MOST_S = 25.0  # in all, less than a plan waits for its runs
FAILURE_S = 0.5  # for a process that failed to write down why
NOTE_BYTES = 1 << 16  # free on the disk, with which a process can write down why it failed
CHECK_EVERY_S = 0.1  # how often the coordinator looks whether the run can continue
ANSWER_S = 2.0  # for the members of a collective to say what they are doing


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a run that has ended; it stays in the record until all snapshots are evaluated."""

    ended_by: str
    totals: Totals
    observed: Mapping[str, Any]  # `LiveObserver.state_dict`

    def write(self, folder: Path) -> None:
        content = {"ended_by": self.ended_by, "totals": self.totals.state_dict(), "observed": self.observed}
        write_file(folder / ENDED, json.dumps(content) + "\n")

    @classmethod
    def read(cls, folder: Path) -> "Outcome | None":
        """None: the run has not ended."""
        try:
            content = json.loads((folder / ENDED).read_text())
        except FileNotFoundError:
            return None
        return cls(content["ended_by"], Totals.from_state(content["totals"]), content["observed"])


class Attempt:
    """All processes of the run, from their start to their end; the keepers of all ranks start them.

    Args:
        folder: of the record.
        words: of the command line of every rank.
        number: of attempts before this one.

    Raises:
        RunFailed: the coordinator cannot listen. InterfaceError: this host has no address for the others.
    """

    def __init__(
        self, config: RunConfig, folder: Path, words: list[str], observer: LiveObserver, ranks: Ranks, number: int
    ) -> None:
        runner = config.live
        self._config, self._folder, self._observer, self._ranks = config, folder, observer, ranks
        self._has_server, collective = config.strategy.has_server, config.strategy.collective
        # Steps until all members of a collective know that they are to stop; those of all peers while one computes.
        alone = 0 if self._has_server else config.cluster.workers
        self._spread = alone if collective is None else collective.spread(config.cluster.workers)
        self._num_parts, self._number = num_parts(config), number
        self._num_leaders = config.cluster.shards if self._has_server else 1
        secret, listen_at = new_secret(), ranks.listen_at(config)
        try:
            self._server = ControlServer(listen_at, secret.encode(), config.dead_s)
        except OSError as error:
            raise RunFailed(f"the coordinator cannot listen at {listen_at} ({error.strerror})") from None
        self._job = Job(
            folder=str(folder),
            name=new_job_name(),
            words=words,
            secret=secret,
            control_address=self._server.address,
            resume=newest_checkpoint(config, folder),
            num_present=wanted_workers(folder) or runner.initial_workers or config.cluster.workers,
        )
        # The leaders are notified: the shards, or the first member of a collective, which notifies the others.
        self._leaders: dict[int, Peer] = {}
        self._workers: dict[int, Peer] = {}  # all members of a collective among them
        self._ready: set[int] = set()  # leaders
        self._done: dict[int, messages.Done] = {}  # by part
        self._stopped: set[tuple[str, int]] = set()  # role and index of who has written its part of the last checkpoint
        self._is_begun = False
        self._last_message: dict[int, float] = {}  # leader -> when it last sent a message, monotonic
        self._warned: set[int] = set()  # leaders that were named as silent
        self._unreachable: dict[int, str] = {}  # worker -> what it could not reach
        self._step_s = 0.0  # of a collective, a mean

    def run(self) -> Outcome:
        """From the start of the processes until the run is over at all that write states.

        Returns:
            The outcome, which is also written to the record.

        Raises:
            RunFailed, Restart, KeyboardInterrupt
        """
        try:
            self._observer.rewind(self._job.resume)
            self._job.write()
            Announcement(self._ranks).set(self._folder.name, self._job.name)
            next_check = time.monotonic()
            deadline = next_check + self._config.live.start_timeout_s
            while not self._is_over:
                try:
                    self._handle(*self._server.messages.get(timeout=max(next_check - time.monotonic(), 0.0)))
                except queue.Empty:  # only then: who is judged silent has sent nothing that waits here
                    next_check = time.monotonic() + CHECK_EVERY_S
                    self._check(deadline)
        except StopRequested as stop:
            asked, kept = self._stop(stop.number), "checkpointed"
            if self._is_over:
                self._outcome()
            elif (newest := newest_checkpoint(self._config, self._folder)) is None:
                raise
            elif newest != asked:
                totals = read_values(state_path(self._folder / "checkpoint", newest, 0))["totals"]
                kept = f"stopped; its last checkpoint is of update {totals['updates']:,}"
            raise StopRequested(stop.number, f"{self._folder.name} {kept}") from None
        except KeyboardInterrupt:
            self._stop(signal.SIGINT)
            raise
        return self._outcome()

    def _outcome(self) -> Outcome:
        totals = [Totals.from_state(self._done[leader].totals) for leader in range(self._num_leaders)]
        reasons = [self._done[part].ended_by for part in sorted(self._done)]
        ended_by = "diverged" if "diverged" in reasons else reasons[0]
        outcome = Outcome(ended_by, Totals.of_shards(totals), self._observer.state_dict())
        outcome.write(self._folder)
        return outcome

    def end(self) -> None:
        """End all processes; those that do not end with their connections are killed by their keepers."""
        if self._is_over:
            self._server.wait(STOP_S)
        self._job.remove()
        self._server.close()

    def _add_workers(self) -> None:
        """Start the workers that were asked for since."""
        before, wanted = self._job.num_present, wanted_workers(self._folder)
        if wanted is None or not before < wanted <= self._config.cluster.workers:
            return
        self._job = self._job.grown(wanted)
        for worker in range(before, wanted):
            say(f"worker {worker} is started")

    def _check(self, deadline: float) -> None:
        """What is due now and then. Raises RunFailed, Restart: the run cannot continue."""
        self._observer.tick()
        self._watch()
        self._add_workers()
        if (failure := first_failure(self._folder)) is not None:
            raise failure
        if not self._is_begun and time.monotonic() > deadline:
            raise self._cause(self._who_is_missing()) from None
        if self._observer.monitor.has_reached_target:
            self._notify_leaders(messages.End("target"))

    @property
    def _is_over(self) -> bool:
        return len(self._done) == self._num_parts

    def _watch(self) -> None:
        """Name a leader that is silent: a shard, or the collective as a whole."""
        runner, now = self._config.live, time.monotonic()
        for index, then in self._last_message.items():
            silent_s = now - then
            if not self._is_begun or index in self._done or silent_s < min(runner.hang_s, runner.leave_s):
                continue
            who = f"shard {index}" if self._has_server else "the collective"
            if silent_s >= runner.leave_s:
                raise Restart(f"{who} was silent for {silent_s:.1f} s")
            if index in self._warned:
                continue
            self._warned.add(index)
            say(f"{who} is silent for {silent_s:.1f} s")
            if not self._has_server:
                self._ask_for_activity()

    def _ask_for_activity(self) -> None:
        """Show what each member of the collective is doing; one that hangs does not answer."""
        members = self._workers
        for member in members.values():
            member.send(messages.ReportActivity())
        answers: dict[int, str] = {}
        ends = time.monotonic() + ANSWER_S
        while len(answers) < len(members) and (left := ends - time.monotonic()) > 0:
            try:
                peer, message = self._server.messages.get(timeout=left)
            except queue.Empty:
                break
            if isinstance(message, messages.Activity):
                answers[peer.hello.index] = message.doing
            else:
                self._handle(peer, message)
        for index in sorted(members):
            say(f"worker {index}{self._where(members[index])}: {answers.get(index, 'does not answer')}")

    def _handle(self, peer: Peer, message: messages.ControlMessage | Lost) -> None:
        if self._leaders.get(peer.hello.index) is peer:
            self._last_message[peer.hello.index] = time.monotonic()
            self._warned.discard(peer.hello.index)
        match message:
            case messages.Hello():
                self._connected(peer)
            case messages.Ready():
                self._ready.add(peer.hello.index)
                if len(self._ready) == self._num_leaders:
                    self._begin()
            case messages.ProgressReport():
                self._step_s = message.time_s / max(message.updates, 1)
                self._observer.progressed(peer.hello.index, message)
            case messages.SnapshotWritten(number):
                self._observer.snapshot_written(peer.hello.index, number)
            case messages.Warn(text, at) if peer.hello.index == 0:
                say(f"{at:.1f} s: {text}")
            case messages.RestartNeeded(why):
                raise self._cause(why)
            case messages.Done():
                peer.is_done = True
                if self._writes_states(peer):
                    self._done[peer.hello.index] = message
            case messages.Unreachable(why):
                self._unreachable[peer.hello.index] = why
            case Lost(why) if not peer.is_done and peer.hello.role == "worker" and self._has_server:
                peer.is_done = True
                self._notify_leaders(messages.WorkerLost(peer.hello.index, peer.hello.pid, why))
            case Lost() if not peer.is_done:
                raise self._cause(f"{peer} (process {peer.hello.pid}{self._where(peer)}) was lost")

    def _where(self, peer: Peer) -> str:
        """What follows a process's name in a message; empty if there is one host."""
        return f" on host {peer.hello.host}" if peer.hello.host else ""

    def _connected(self, peer: Peer) -> None:
        for name, version in versions().items() if peer.hello.versions else ():
            if (theirs := peer.hello.versions.get(name)) != version:
                what = f"{peer}{self._where(peer)} has {name} {theirs}, the coordinator {version}"
                raise RunFailed(f"{what}; they must be the same")
        about = {name: getattr(peer.hello, name) for name in ("role", "index", "pid", "clock_error_s")}
        with (self._folder / "log" / "processes.jsonl").open("a") as file:
            print(json.dumps(about), file=file)
        self._observer.clock_error_s = max(self._observer.clock_error_s, peer.hello.clock_error_s)
        is_leader = peer.hello.role == "shard" or (not self._has_server and peer.hello.index == 0)
        if peer.hello.role == "worker":
            self._workers[peer.hello.index] = peer
        if is_leader:
            self._leaders[peer.hello.index] = peer
            self._last_message[peer.hello.index] = time.monotonic()
        if len(self._leaders) == self._num_leaders:
            addresses = [self._leaders[leader].hello.address for leader in sorted(self._leaders)]
            for worker in list(self._workers.values()) if is_leader else [peer]:
                worker.send(messages.Addresses(addresses))

    def _begin(self) -> None:
        self._is_begun = True
        self._observer.begun()
        self._notify_leaders(messages.Begin(time.monotonic()))

    def _writes_states(self, peer: Peer) -> bool:
        """It writes a part of every state."""
        return peer.hello.index < self._num_parts and (peer.hello.role == "shard" or not self._has_server)

    def _writes_checkpoints(self, peer: Peer) -> bool:
        """It writes a part of every checkpoint."""
        return self._writes_states(peer) or (peer.hello.role == "worker" and self._config.keeps_state_at_workers)

    def _notify_leaders(self, message: messages.ControlMessage) -> None:
        for leader in self._leaders.values():
            leader.send(message)

    def _stop(self, number: int) -> float:
        """Ask for checkpoints, as this signal came, and wait for them.

        After a notice of a time limit, which is one of minutes, that is until another signal comes or all are silent
        for so long that they count as lost. Else it is not for long.

        Returns:
            The number of the checkpoint.
        """
        checkpoint = stop_number(self._folder / "checkpoint")
        self._notify_leaders(messages.Stop(checkpoint))
        now, wait_s, is_notice = time.monotonic(), STOP_S, self._is_begun and number == NOTICE
        if is_notice:
            wait_s = self._config.live.leave_s
        elif self._is_begun and not self._has_server:
            step_s = max(self._step_s, now - self._last_message[0])  # the one under way may take longer than the others
            wait_s = min(STOP_S + (1 + self._spread) * step_s, STOP_MOST_S)
        ends = now + wait_s
        peers = [peer for peer in (*self._leaders.values(), *self._workers.values()) if not peer.is_done]
        expected = {(peer.hello.role, peer.hello.index) for peer in peers if self._writes_checkpoints(peer)}
        with suppress(queue.Empty):
            while not expected <= self._stopped and (left := ends - time.monotonic()) > 0:
                peer, message = self._server.messages.get(timeout=left)
                if is_notice:
                    ends = time.monotonic() + wait_s
                if isinstance(message, messages.Done):
                    self._handle(peer, message)
                has_stopped = isinstance(message, messages.Stopped | messages.Done | Lost)
                if has_stopped and self._writes_checkpoints(peer):
                    self._stopped.add((peer.hello.role, peer.hello.index))
        return checkpoint

    def _cause(self, otherwise: str) -> Exception:
        """Why the run cannot continue: the first error that a process has written down, or else this."""
        ends = time.monotonic() + FAILURE_S
        while (failure := first_failure(self._folder)) is None and time.monotonic() < ends:
            time.sleep(0.05)
        if failure is None and shutil.disk_usage(self._folder).free < NOTE_BYTES:
            return RunFailed(str(cannot_write(self._folder, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))))
        return failure or (Restart(otherwise) if self._is_begun or self._number else RunFailed(otherwise))

    def _who_is_missing(self) -> str:
        shards = range(self._num_leaders if self._has_server else 0)
        workers = range(self._job.num_present)
        missing = [("shard", shard) for shard in shards if shard not in self._leaders]
        missing += [("worker", worker) for worker in workers if worker not in self._workers]
        if not missing and self._unreachable:
            worker, why = next(iter(self._unreachable.items()))
            return f"worker {worker}{self._where(self._workers[worker])} cannot reach {why}"
        within = f"within {self._config.live.start_timeout_s:g} s"
        if not missing:
            return f"all processes came, but did not reach each other {within}; is the network between them up?"
        names = ", ".join(f"{role} {index}" for role, index in missing)
        return f"{names} did not come {within}"
