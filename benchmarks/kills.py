"""python -m benchmarks.kills --kills 300: parts of small runs of real processes are killed, at random times.

Each run is hit again and again until it ends: a worker, a shard, the supervisor with all processes of its host, the
launcher (the same command then resumes the run) and, over emulated hosts (as root), an agent, or a host's cable is cut
and connected again. The seed chooses what is hit and when. Every run must end by itself, finished, with each mini-batch
used once, and leave no process behind.

The table says how long it took, from the kill, until the loss was noticed and until all went on as before (of a cable:
from its connection), and for workers that strategies do without the longest pause between the others' pushes.
"""

import argparse
import math
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from statistics import median

from benchmarks.emulated import CannotEmulate, EmulatedHosts
from benchmarks.live_run import LiveRun, absences, check_mini_batches, kill, parent
from syncline.live.parts import newest_checkpoint
from syncline.records.events import read_events

WORKERS = 4  # DS-Sync needs a grid
GRADIENT_S = 0.02
SECONDS = 40.0  # that a run would take undisturbed
PAUSES_S = 0.2, 2.0  # between a recovery and the next kill
ALONE_S = 1.0  # a host stays cut off after it was treated as lost
RUN = {False: "goes on without it", True: "restarts from its checkpoint"}
RESTARTS, CONTINUES = "restarts from its last checkpoint", "the run continues"
STRATEGIES: dict[str, tuple[str, ...]] = {
    "asp": ("strategy=asp",),
    "ssp": ("strategy=ssp", "strategy.staleness=6"),
    "dssp": ("strategy=dssp", "runner.evaluate=during", "eval_every_epochs=5"),
    "psp": ("strategy=psp",),
    "k_async": ("strategy=k_async", "strategy.k=2"),
    "bsp": ("strategy=bsp",),
    "bsp on 2 shards": ("strategy=bsp", "cluster.shards=2"),
    "all-reduce": ("strategy=bsp", "strategy.topology=allreduce"),
    "ds_sync": ("strategy=ds_sync",),
}
ON_HOSTS = ("asp", "ssp", "all-reduce")
GRADIENTS_AN_UPDATE = {
    "bsp": WORKERS,
    "bsp on 2 shards": WORKERS,
    "all-reduce": WORKERS,
    "ds_sync": WORKERS,
    "psp": WORKERS,
    "k_async": 2,
}  # else 1


@dataclass(frozen=True, slots=True)
class Kill:
    """What followed a kill; seconds."""

    where: str  # "1 host", "3 hosts"
    strategy: str
    victim: str  # worker, shard, supervisor, launcher, agent, cable
    restarted: bool  # the whole run, from its checkpoint
    noticed_s: float | None  # from the kill; None: nobody was left who could
    back_s: float  # from the kill, or from the connection of a cable


@dataclass
class Series:
    """One run that is hit until it ends, and what followed.

    Raises:
        AssertionError: the run did not end correctly.
    """

    strategy: str
    seed: int
    results: Path
    hosts: EmulatedHosts | None = None
    seconds: float = SECONDS
    kills: list[Kill] = field(default_factory=list)
    pauses_s: list[float] = field(default_factory=list)  # of the others, of each worker that was lost

    @property
    def where(self) -> str:
        return "1 host" if self.hosts is None else f"{len(self.hosts.names)} hosts"

    def stop(self) -> None:
        """End what is left of a run that failed."""
        if self._run.process.poll() is None:
            self._run.kill_launcher()

    def run(self, most: int) -> None:
        """At most so many kills."""
        self._luck = random.Random(self.seed)
        self._start()
        self._until("a checkpoint", lambda: newest_checkpoint(self._run.config, self._run.folder) is not None)
        try:
            while len(self.kills) < most and self._strike():
                pass
        finally:
            if self.hosts is not None:  # the run may have ended while a cable was cut
                for name in self.hosts.names:
                    self.hosts.heal(name)
        self._run.wait()
        self._check()

    def _start(self) -> None:
        hosts, updates = self.hosts, round(self.seconds / GRADIENT_S) * WORKERS
        words = [
            *(f"seed={self.seed}", f"cluster.workers={WORKERS}", f"cluster.gradient_s=[{GRADIENT_S}]"),
            *("runner.pace=absolute", "runner.checkpoint_every_epochs=2", "runner.max_restarts=1000"),
            *("batch_size=32", "eval_every_epochs=50", "epochs=null"),
            f"max_updates={updates // GRADIENTS_AN_UPDATE.get(self.strategy, 1)}",
            *STRATEGIES[self.strategy],
        ]
        if hosts is None:
            self._run = LiveRun(self.results, *words)
            return
        words += [*hosts.overrides, "runner.workers_per_host=[1]"]
        self._run = LiveRun(self.results, *words, on=hosts.on(hosts.switch))

    def _strike(self) -> bool:
        """Kill something, and wait until all goes on. False: the run has ended."""
        time.sleep(self._luck.uniform(*PAUSES_S))
        if self._run.process.poll() is not None:
            return False
        victims = ["worker", "worker", "supervisor", "launcher"]
        victims += ["shard"] * self._run.config.strategy.has_server
        victims += [] if self.hosts is None else ["agent", "cable"]
        victim, worker = self._luck.choice(victims), self._luck.randrange(WORKERS)
        found = self._launcher() if victim == "launcher" else self._part(victim, worker)
        if found is not None:
            self.kills.append(found)
        return found is not None

    def _launcher(self) -> Kill | None:
        """Kill the launcher, and start the run again."""
        begun = time.monotonic()
        self._run.kill_launcher()
        left = self._run.left_over()
        ends = begun + 15.0
        while left and time.monotonic() < ends:
            time.sleep(0.01)
            left = self._run.left_over()
        assert not left, f"after the launcher was killed: {left}"
        begun = time.monotonic()
        self._start()
        if not self._until(CONTINUES, lambda: CONTINUES in self._run.output()):
            return None
        return self._kill("launcher", True, None, time.monotonic() - begun)

    def _part(self, victim: str, worker: int) -> Kill | None:
        """Kill another part, with which one worker is lost or the whole run must restart."""
        run, hosts = self._run, self.hosts
        place = worker  # its host has the same number
        lost_words, back_words = f"worker {worker} left", f"worker {worker} joined"
        is_shared = victim == "shard" or (victim in ("supervisor", "agent", "cable") and (hosts is None or place == 0))
        restarts = is_shared or not run.config.strategy.elastic
        if restarts:
            lost_words, back_words = RESTARTS, CONTINUES
        before = len(run.output())

        def has_said(words: str) -> bool:
            return words in run.output()[before:]

        begun = time.monotonic()
        if victim == "cable":
            assert hosts is not None
            hosts.cut(hosts.names[place])
        else:
            try:
                kill(self._pid(victim, worker))
            except ProcessLookupError:
                return None
        if not self._until(lost_words, lambda: has_said(lost_words)):
            return None
        noticed_s = time.monotonic() - begun
        if victim == "cable":
            assert hosts is not None
            time.sleep(ALONE_S)
            hosts.heal(hosts.names[place])
            begun = time.monotonic()
        if not self._until(back_words, lambda: has_said(back_words)):
            return None
        return self._kill(victim, restarts, noticed_s, time.monotonic() - begun)

    def _pid(self, victim: str, worker: int) -> int:
        if victim == "shard":
            return self._run.pid("shard", worker % self._run.config.cluster.shards)
        pid = self._run.pid("worker", worker)
        for _ in range(("worker", "supervisor", "agent").index(victim)):
            pid = parent(pid)
        return pid

    def _kill(self, victim: str, restarted: bool, noticed_s: float | None, back_s: float) -> Kill:
        return Kill(self.where, self.strategy, victim, restarted, noticed_s, back_s)

    def _until(self, what: str, condition: Callable[[], bool]) -> bool:
        """Wait for it. False: the run has ended before, by itself."""
        ends = time.monotonic() + 60.0
        while not condition():
            if self._run.process.poll() is not None:
                return condition()
            assert time.monotonic() < ends, f"not {what!r} within 60 s:\n{self._run.output()[-2000:]}"
            time.sleep(0.005)
        return True

    def _check(self) -> None:
        """The run is finished, and each mini-batch was used once."""
        run, summary = self._run, self._run.summary()
        assert summary["status"] == "finished", summary
        assert summary["updates"] == run.config.max_updates, summary
        assert run.has_ended_cleanly(), run.left_over()
        log = read_events(run.folder / "events.arrow").to_pandas()
        for _, of_shard in log.groupby("shard"):
            check_mini_batches(of_shard, WORKERS)
        self.pauses_s = [absence.longest_pause_s for absence in absences(log)]


def told(seconds: Sequence[float | None]) -> str:
    """Median, and 99th percentile by its nearest rank."""
    known = sorted(each for each in seconds if each is not None)
    if not known:
        return "-"
    return f"{median(known):.2f}, {known[math.ceil(0.99 * len(known)) - 1]:.2f}"


def table(kills: Sequence[Kill]) -> Iterable[str]:
    """A row for each kind of kill, in Markdown."""
    yield "| where | killed | strategies | the run | n | noticed after s: median, 99th percentile | back after s |"
    yield "|---|---|---|---|---:|---|---|"

    def kind(each: Kill) -> tuple[str, bool, str]:
        return each.where, each.restarted, each.victim

    for (where, restarted, victim), group in groupby(sorted(kills, key=kind), kind):
        own = list(group)
        names = ", ".join(name for name in STRATEGIES if any(each.strategy == name for each in own))
        noticed, back = told([each.noticed_s for each in own]), told([each.back_s for each in own])
        yield f"| {where} | {victim} | {names} | {RUN[restarted]} | {len(own)} | {noticed} | {back} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    options = parser.parse_args()
    kills, failed, number = list[Kill](), 0, 0
    paused: dict[str, list[float]] = {}  # by place and strategy
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        hosts = None
        try:
            hosts = stack.enter_context(EmulatedHosts(WORKERS))
        except CannotEmulate as why:
            print(f"one host alone: {why}")
        settings = [(name, None) for name in STRATEGIES] + [(name, hosts) for name in ON_HOSTS if hosts is not None]
        share = math.ceil(options.kills / len(settings))
        while len(kills) < options.kills:
            strategy, place = settings[number % len(settings)]
            series = Series(strategy, options.seed + number, Path(folder), place)
            number += 1
            words = f"{number:3} {strategy:13} {series.where:7} seed {series.seed}"
            try:
                series.run(min(share, options.kills - len(kills)))
                print(f"{words}: {len(series.kills)} kills", flush=True)
            except AssertionError as error:
                failed += 1
                series.stop()
                print(f"{words} FAILED after {len(series.kills)} kills: {error}", flush=True)
            kills += series.kills
            paused.setdefault(f"{strategy}, {series.where}", []).extend(series.pauses_s)
    print(f"{len(kills)} kills in {number} runs, of which {number - failed} ended by themselves and correctly")
    print(*table(kills), sep="\n")
    print("Longest pause between others' pushes while a worker is away, s: median, 99th percentile")
    for name, seconds in paused.items():
        if seconds:
            print(f"  {name}: {told(seconds)} (n = {len(seconds)})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
