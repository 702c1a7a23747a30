"""python -m benchmarks kills --kills 300: parts of small runs of real processes are killed, at random times.

Each run is hit again and again until it ends: a worker, a shard, the coordinator, a keeper with its processes or the
launcher, which on one host is torchrun (the same command then resumes the run). Over emulated hosts (as root) it is
also torchrun on another host than the first. The seed chooses what is hit and when. Every run must end by itself,
finished, with each mini-batch used once, and leave no process behind.

The table says how long it took, from the kill, until the loss was noticed and until all went on as before, and for
workers that strategies do without the longest pause between the others' pushes.
"""

import argparse
import math
import random
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
from syncline.live.checkpoints import newest_checkpoint
from syncline.records.events import read_events

WORKERS = 4  # DS-Sync needs a grid
GRADIENT_S = 0.02
SECONDS = 40.0  # that a run would take undisturbed, at most
SECONDS_A_KILL = 4.0
PAUSES_S = 0.2, 2.0  # between a recovery and the next kill
END_S = 15.0  # for all processes to end after the launcher was killed
# Of the 99th percentile until all goes on as before; a worker that the others need counts as a member.
GOALS_S = {"worker": 1.0, "member": 2.0, "shard": 2.0, "coordinator": 3.0, "keeper": 10.0}
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
    "ad_psgd": ("strategy=ad_psgd",),
}
ON_HOSTS = ("asp", "ssp", "all-reduce")
GRADIENTS_AN_UPDATE = {  # else 1
    **dict.fromkeys(("bsp", "bsp on 2 shards", "all-reduce", "ds_sync", "psp"), WORKERS),
    "k_async": 2,
}


@dataclass(frozen=True, slots=True)
class Kill:
    """What followed a kill; seconds."""

    where: str  # "1 host", "3 hosts"
    strategy: str
    victim: str  # worker, member, shard, coordinator, keeper, torchrun, launcher
    restarted: bool  # the whole run, from its checkpoint
    noticed_s: float | None  # from the kill; None: nobody was left who could
    back_s: float  # from the kill


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
        while len(self.kills) < most and self._strike():
            pass
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
        self._run = LiveRun(self.results, *words, *hosts.overrides, on=hosts.on(hosts.switch))

    def _strike(self) -> bool:
        """Kill something, and wait until all goes on. False: the run has ended."""
        time.sleep(self._luck.uniform(*PAUSES_S))
        if self._run.process.poll() is not None:
            return False
        has_server = self._run.config.strategy.has_server
        victims = [*["worker" if has_server else "member"] * 2, "keeper", "launcher", "coordinator"]
        victims += ["shard"] * has_server
        victims += [] if self.hosts is None else ["torchrun"]
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
        while left and time.monotonic() < begun + END_S:
            time.sleep(0.01)
            left = self._run.left_over()
        assert not left, f"after the launcher was killed: {left}"
        begun = time.monotonic()
        self._start()
        if not self._until(CONTINUES, lambda: CONTINUES in self._run.output()):
            return None
        return self._kill("launcher" if self.hosts else "torchrun", True, None, time.monotonic() - begun)

    def _part(self, victim: str, worker: int) -> Kill | None:
        """Kill another part, with which workers are lost or the whole run must restart."""
        run = self._run
        if victim == "torchrun":
            worker = max(worker, 1)  # the first host's is the run's end
        # torchrun restarts all ranks of its node, and the first one has the coordinator, which has noticed nothing.
        is_anew = victim == "coordinator" or (victim == "keeper" and (self.hosts is None or worker == 0))
        restarts = is_anew or victim == "shard" or not run.config.strategy.elastic
        lost_words, back_words = f"worker {worker} left", f"worker {worker} joined"
        if restarts:
            lost_words, back_words = "" if is_anew else RESTARTS, CONTINUES
        before = len(run.output())
        try:
            pid = self._pid(victim, worker)
            assert pid in run.alive()  # no other process of this machine
            begun = time.monotonic()
            kill(pid)
        except (OSError, StopIteration, AssertionError):
            return None  # the run is about to end
        if not self._until(lost_words, lambda: lost_words in run.output()[before:]):
            return None
        noticed_s = time.monotonic() - begun if lost_words else None
        if not self._until(back_words, lambda: back_words in run.output()[before:]):
            return None
        return self._kill(victim, restarts, noticed_s, time.monotonic() - begun)

    def _pid(self, victim: str, worker: int) -> int:
        if victim == "shard":
            return self._run.pid("shard", worker % self._run.config.cluster.shards)
        if victim == "coordinator":
            return self._run.coordinator()
        pid = self._run.pid("worker", worker)
        for _ in range({"keeper": 1, "torchrun": 2}.get(victim, 0)):
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
    yield "| where | killed | strategies | the run | n | noticed after s: median, 99 % | back after s | goal |"
    yield "|---|---|---|---|---:|---|---|---:|"

    def kind(each: Kill) -> tuple[str, bool, str]:
        return each.where, each.restarted, each.victim

    for (where, restarted, victim), group in groupby(sorted(kills, key=kind), kind):
        own = list(group)
        names = ", ".join(name for name in STRATEGIES if any(each.strategy == name for each in own))
        noticed, back = told([each.noticed_s for each in own]), told([each.back_s for each in own])
        goal_s = GOALS_S.get("member" if victim == "worker" and restarted else victim)
        goal = "-" if goal_s is None else f"{goal_s:g}"
        yield f"| {where} | {victim} | {names} | {RUN[restarted]} | {len(own)} | {noticed} | {back} | {goal} |"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    options = parser.parse_args(arguments)
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
            seconds = min(SECONDS_A_KILL * (share + 1), SECONDS)
            series = Series(strategy, options.seed + number, Path(folder), place, seconds)
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
