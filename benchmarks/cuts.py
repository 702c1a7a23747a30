"""python -m benchmarks cuts: a host is disconnected in the middle of a run, or packets are lost or late; as root.

Three emulated hosts (benchmarks/emulated.py), a worker on each, the shards on the first ones; a gradient takes 50 ms.
The cable of the third is cut. `DEAD_S` after its last message its worker is treated as lost; then the cable is healed.
The others must continue, and let it rejoin. A run over a bad network must end as over a good one, with each mini-batch
used once. Nobody may be treated as lost but where packets are: there `runner.dead_s` may pass before one of many
repetitions arrives.
"""

import argparse
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.emulated import CannotEmulate, EmulatedHosts
from benchmarks.live_run import LiveRun, absences, check_mini_batches
from syncline.records.events import read_events

DEAD_S = 3.0
LOST = 2  # the worker, and the host
ALONE_S = 1.0  # of the others alone, once the lost worker has left
AFTER_S = 3.0  # for it to push to every shard again, on a loaded machine; the first shard reports that it joined
STRATEGIES: dict[str, tuple[str, ...]] = {
    "asp": ("strategy=asp",),
    "ssp": ("strategy=ssp", "strategy.staleness=3"),
    "dssp": ("strategy=dssp",),
    "backup": ("strategy=backup", "strategy.backups=1", "cluster.shards=2"),
    "psp": ("strategy=psp", "cluster.shards=2"),
}
ALL = STRATEGIES | {"all-reduce": ("strategy=bsp", "strategy.topology=allreduce")}  # over bad networks
GRADIENTS = 150  # of all workers, over a bad network
LOSSY = "5 % lost"
NETWORKS: dict[str, Callable[[EmulatedHosts], None]] = {
    "good": lambda hosts: None,
    LOSSY: lambda hosts: hosts.lose(0.05),
    "10 % late": lambda hosts: hosts.reorder(0.1),
}


@dataclass(frozen=True, slots=True)
class Cut:
    """What one shard saw."""

    away_s: float  # from the last push of the lost worker to its return
    pushes_without: int  # of the others, meanwhile
    pushes_since_left: int  # of these, those after the worker was treated as lost
    longest_pause_s: float  # between two of these
    pushes_after: int  # of the lost worker, after it rejoined

    @property
    def is_survived(self) -> bool:
        return self.pushes_since_left > 10 and self.pushes_after > 0


def run_over(hosts: EmulatedHosts, results: Path, *words: str) -> LiveRun:
    """A run with a worker on each host; its launcher is on the switch."""
    return LiveRun(
        results,
        *("cluster.workers=3", "cluster.gradient_s=[0.05]", "runner.pace=absolute", "epochs=null"),
        *(*hosts.overrides, *words),
        on=hosts.on(hosts.switch),
    )


def over_network(network: str, hosts: EmulatedHosts, results: Path, *words: str) -> tuple[float, int]:
    """One run over such a network.

    Returns:
        Its seconds, and how often somebody was treated as lost who was there.

    Raises:
        AssertionError: it did not end correctly.
        CannotEmulate: this machine has no such network.
    """
    NETWORKS[network](hosts)
    run = run_over(hosts, results, *words)
    try:
        run.wait()
    finally:
        if run.process.poll() is None:
            run.kill_launcher()
    assert run.has_ended_cleanly(), run.left_over()
    log, summary = read_events(run.folder / "events.arrow").to_pandas(), run.summary()
    num_left = len(log[(log.kind == "left") & (log["shard"] == 0)])
    for shard in range(run.config.cluster.shards):
        check_mini_batches(log[log["shard"] == shard], run.config.cluster.workers)
    assert summary["updates"] == run.config.max_updates
    num_lost = num_left + summary["restarts"]
    assert network == LOSSY or not num_lost, f"{num_lost} treated as lost"
    return float(summary["time_s"]), num_lost


def cut_once(strategy: str, hosts: EmulatedHosts, results: Path, *overrides: str) -> list[Cut]:
    """One run, which is ended once its lost worker has rejoined. Returns what each shard saw.

    Raises:
        AssertionError: it did not continue, or did not end correctly.
    """
    name = hosts.names[LOST]
    words = (*STRATEGIES[strategy], "max_time_s=60", f"runner.dead_s={DEAD_S}")
    run = run_over(hosts, results, *words, "runner.hang_s=1", *overrides)
    try:
        run.wait_for_snapshot(2)
        hosts.cut(name)
        run.wait_for_output(f"worker {LOST} left")
        time.sleep(ALONE_S)
        hosts.heal(name)
        run.wait_for_output(f"worker {LOST} joined")
        time.sleep(AFTER_S)
        run.process.send_signal(signal.SIGINT)
        run.wait(expected=130)
    finally:
        if run.process.poll() is None:
            run.kill_launcher()
    assert run.has_ended_cleanly(), run.left_over()
    return [seen(path) for path in sorted(run.folder.glob("events-*.arrow"))]


def seen(path: Path, lost: int = LOST) -> Cut:
    """What the shard saw that wrote these events."""
    log = read_events(path).to_pandas()
    (absence,) = absences(log)
    own = log[(log.kind == "pushed") & (log.worker == lost)]["at"]
    return Cut(
        absence.joined_at - absence.began_at,
        len(absence.others_at),
        sum(at > absence.left_at for at in absence.others_at),
        absence.longest_pause_s,
        int((own > absence.joined_at).sum()),
    )


def cut_all(strategies: Sequence[str]) -> int:
    """Returns how many failed."""
    failed = 0
    for strategy in strategies:
        with tempfile.TemporaryDirectory() as folder, EmulatedHosts(3) as hosts:
            try:
                cuts = cut_once(strategy, hosts, Path(folder))
            except AssertionError as error:
                failed += 1
                print(f"{strategy:6} FAILED: {error}", flush=True)
                continue
        cut = min(cuts, key=lambda cut: cut.pushes_without)
        pace = cut.pushes_without / cut.away_s
        print(
            f"{strategy:6} away for {cut.away_s:.1f} s: {cut.pushes_without} pushes by others ({pace:.1f} a second), "
            f"longest pause {cut.longest_pause_s:.2f} s; {cut.pushes_after} of its own later",
            flush=True,
        )
        failed += not all(cut.is_survived for cut in cuts)
    return failed


def over_all_networks(strategy: str) -> int:
    """Returns how many failed."""
    failed = 0
    updates = GRADIENTS // 3 if strategy in ("all-reduce", "backup") else GRADIENTS
    for network in NETWORKS:
        with tempfile.TemporaryDirectory() as folder, EmulatedHosts(3) as hosts:
            try:
                words = ALL[strategy]
                seconds, num_lost = over_network(network, hosts, Path(folder), *words, f"max_updates={updates}")
                print(f"{strategy:10} {network:9} {seconds:5.1f} s, {num_lost} treated as lost", flush=True)
            except AssertionError as error:
                failed += 1
                print(f"{strategy:10} {network:9} FAILED: {error}", flush=True)
            except CannotEmulate as error:
                print(f"{strategy:10} {network:9} not tried: {error}", flush=True)
    return failed


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks cuts", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=ALL, default=list(ALL))
    options = parser.parse_args(arguments)
    failed = cut_all([name for name in options.only if name in STRATEGIES])
    failed += sum(map(over_all_networks, options.only))
    return 1 if failed else 0
