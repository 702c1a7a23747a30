"""python -m benchmarks hosts: does the simulator predict runs over several hosts, whose time is mostly communication?

The hosts are network namespaces with cables of 1 Gbit/s, or of 100 Mbit/s. A network of 4.9 million weights (20 MB a
message) learns; a gradient takes a set time, longer than its computation, with 10 % of noise (without, workers that
share a NIC stay in step for ever in virtual time, which real ones do not). The same config in virtual time predicts the
time of an update, with the bandwidth that the cables leave to TCP's data. Messages share a NIC equally there, as with a
TCP that does not begin slowly after each pause; for others calibration fits `cluster.network.later_weight`.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.emulated import EmulatedHosts
from benchmarks.live_run import LiveRun
from benchmarks.measuring import Spread, simulated, write_results
from runners.measuring import in_virtual_time, median_seconds, shares_ready, small, update_seconds
from syncline.assembly.compression import build_compression
from syncline.assembly.data import shape_of
from syncline.assembly.network import build_flat
from syncline.assembly.optimizers import build_optimizer
from syncline.config import RunConfig, compose
from syncline.learning.compression import Mean
from syncline.strategies.collective import Collective

SLOW_GBPS = 0.1
PAYLOAD = 1448 / 1514  # of an Ethernet frame of TCP with timestamps
GOAL = 0.05  # of the error of a case
NUM_VIRTUAL = 24  # seeds, where chance decides
GRADIENT_S = 0.25
COMMON = (
    *("model=resnet8", "model.width=128", "dataset=digits", "epochs=null", "eval_every_epochs=1000"),
    *(f"cluster.gradient_s=[{GRADIENT_S}]", "scenario=none", "tracker=none"),
    "cluster.jitter={name: normal, mean: 1.0, std: 0.1}",
    *("cluster.network.latency_s=1e-4", "cluster.network.sharing=fair"),
)


@dataclass(frozen=True, slots=True)
class Case:
    """One strategy on its hosts: every shard and every worker has its own."""

    name: str
    hosts: int
    words: tuple[str, ...]
    updates: int
    gbps: float = 1.0  # of a cable
    by_chance: bool = False  # how often workers meet at a shard, which no short run tells: means are compared

    @property
    def repeats(self) -> int:
        return 7 if self.by_chance else 3

    @property
    def sends_parts(self) -> bool:
        """During the backward pass."""
        return OVERLAP in self.words

    @property
    def batch_size(self) -> int:
        """Larger where parts leave during the backward pass, which then takes time; all share two cores."""
        return 32 // self.workers if self.sends_parts else 2

    @property
    def workers(self) -> int:
        return next(int(word.partition("=")[2]) for word in self.words if word.startswith("cluster.workers="))


OWN = "runner.shards_on=own"
BSP = ("strategy=bsp", "cluster.workers=2")
GATHER = ("strategy=bsp", "strategy.topology=allreduce")
OVERLAP = "strategy.impl=overlap"
CASES: tuple[Case, ...] = (
    Case("asp, 1 worker, 1 shard", 2, ("strategy=asp", "cluster.workers=1", OWN), 40),
    Case("bsp, 3 workers, all-reduce", 3, (*GATHER, "cluster.workers=3"), 40),
    Case("bsp, 3 workers, overlap", 3, (*GATHER, OVERLAP, "cluster.workers=3"), 40),
    Case("bsp, 2 workers, overlap, slow", 2, (*GATHER, OVERLAP, "cluster.workers=2"), 10, SLOW_GBPS),
    Case("ds_sync, 4 workers", 4, ("strategy=ds_sync", "cluster.workers=4"), 40),
    Case("ds_sync, 4 workers, overlap", 4, ("strategy=ds_sync", OVERLAP, "cluster.workers=4"), 40),
    Case("ds_sync, 4 workers, overlap, slow", 4, ("strategy=ds_sync", OVERLAP, "cluster.workers=4"), 10, SLOW_GBPS),
    Case("dssp, 3 workers, 1 shard", 4, ("strategy=dssp", "cluster.workers=3", OWN), 300, by_chance=True),
    Case("psp, 2 workers, 2 shards", 4, ("strategy=psp", "cluster.workers=2", "cluster.shards=2", OWN), 80),
    Case("asp, topk 1 %", 4, ("strategy=asp", "cluster.workers=3", "compress=topk", OWN), 300),
    Case("bsp, int8, 2 shards", 4, (*BSP, "cluster.shards=2", "compress=int8", OWN), 30),
    Case("bsp, 4 local steps", 3, (*BSP, "local.steps=4", "optimizer.momentum=0", OWN), 20),
    Case("asp, topk 1 %, slow", 3, ("strategy=asp", "cluster.workers=2", "compress=topk", OWN), 20, SLOW_GBPS),
    Case(
        "asp, topk 1 % both ways, slow",
        3,
        ("strategy=asp", "cluster.workers=2", "compress=topk_both", OWN),
        40,
        SLOW_GBPS,
    ),
    Case("bsp, all-gather, int8, slow", 3, (*GATHER, "cluster.workers=3", "compress=int8"), 10, SLOW_GBPS),
    Case("ds_sync, topk 1 %, slow", 4, ("strategy=ds_sync", "cluster.workers=4", "compress=topk"), 40, SLOW_GBPS),
    Case("bsp, 4 local steps, slow", 3, (*BSP, "local.steps=4", "optimizer.momentum=0", OWN), 6, SLOW_GBPS),
)


def measure(case: Case, results: Path, seed: int) -> tuple[float, float]:
    """Seconds an update: measured with real processes, and predicted."""
    bandwidth = f"cluster.network.bandwidth_gbps={case.gbps * PAYLOAD:.4f}"
    chosen = (f"batch_size={case.batch_size}", f"seed={seed}", f"max_updates={case.updates}")
    words = (*COMMON, bandwidth, *case.words, *chosen)
    here = compose([word for word in words if not word.startswith("runner.")])[0]
    words += (f"cluster.update_s={update_seconds_here(here)}",)
    if case.sends_parts:
        words += (f"cluster.ready={shares_ready(here)}",)
    with EmulatedHosts(case.hosts, case.gbps, slow_start_after_idle=False) as hosts:
        run = LiveRun(
            results,
            *words,
            *(*hosts.overrides, "runner.pace=absolute", "runner.events=false"),
            on=hosts.on(hosts.switch),
        )
        run.wait()
    measured = run.summary()
    foreseen = compose([word for word in words if not word.startswith("runner.")])[0]
    return measured["time_s"] / measured["updates"], _predicted(case, foreseen)


def _predicted(case: Case, config: RunConfig) -> float:
    """Under the same seed, whose draws are the same; where chance decides, the mean over several seeds."""
    if case.by_chance:
        return statistics.fmean(_simulated(replace(config, seed=seed)) for seed in range(NUM_VIRTUAL))
    return _simulated(config)


def _simulated(config: RunConfig) -> float:
    summary = simulated(in_virtual_time(config, config.cluster))
    return float(summary["time_s"] / summary["updates"])


def _ratio(case: Case, measured: Spread, foreseen: Spread) -> float:
    """The median over the runs, each beside its prediction; where chance decides, of the means."""
    if case.by_chance:
        return statistics.fmean(measured.values) / statistics.fmean(foreseen.values)
    return statistics.median(one / other for one, other in zip(measured.values, foreseen.values, strict=True))


def update_seconds_here(config: RunConfig) -> float:
    """`cluster.update_s` of the run; members of a collective do it at the same time, and share the cores."""
    workers, collective = config.cluster.workers, config.strategy.collective
    if collective is None:
        return update_seconds(config)
    with ThreadPoolExecutor(workers) as threads:
        return statistics.median(threads.map(_member_seconds, [config] * workers, [collective] * workers))


def _member_seconds(config: RunConfig, collective: Collective) -> float:
    """The mean of what all members have sent, and the optimizer's step where it is made after the exchange."""
    flat = build_flat(config, shape_of(config), torch.device("cpu"))
    size, compression = flat.weights.numel(), build_compression(config)
    optimizer = build_optimizer(config, flat.layout)
    members = max(len(each.members) for each in collective.of_turn(0, config.cluster.workers))
    flat.gradient.copy_(small(size))
    sent = [] if compression is None else [compression.encode(flat.gradient, number) for number in range(members)]
    mean = None if compression is None else Mean(compression, size)

    def update(number: int) -> None:
        if mean is not None:
            mean.add_to(flat.gradient if collective.replicas else flat.gradient.zero_(), sent)
        else:
            flat.gradient.div_(1.0)  # of the sum; or the weights
        if not collective.replicas:
            optimizer.step(flat.weights, flat.gradient, 1.0, out=flat.weights)
        elif mean is not None:
            flat.weights.add_(flat.gradient, alpha=1e-3)

    return median_seconds(update)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks hosts", description=__doc__)
    parser.add_argument("--repeats", type=int, help="of each case, in place of its own number")
    parser.add_argument("--only", default="", help="cases whose names begin with this")
    parser.add_argument("--output", type=Path, default=Path("results/hosts"))
    options = parser.parse_args(arguments)
    made, off_by = list[dict[str, Any]](), list[float]()
    for case in [case for case in CASES if case.name.startswith(options.only)]:
        with tempfile.TemporaryDirectory() as folder:
            pairs = [measure(case, Path(folder), seed) for seed in range(options.repeats or case.repeats)]
        measured, foreseen = Spread(tuple(one for one, _ in pairs)), Spread(tuple(other for _, other in pairs))
        load = os.getloadavg()[0]
        ratio = _ratio(case, measured, foreseen)
        off_by.append(abs(ratio - 1))
        print(
            f"{case.name:30} s an update: measured {measured}, predicted {foreseen.median:.3f}; "
            f"ratio {'of means ' * case.by_chance}{ratio:.3f}, load {load:.1f}",
            flush=True,
        )
        made.append(
            {
                "case": case.name,
                "gbps": case.gbps,
                "measured_s": measured.values,
                "predicted_s": foreseen.values,
                "load": load,
            }
        )
    write_results(options.output / "cases.json", {"gradient_s": GRADIENT_S, "cases": made})
    return 0 if max(off_by, default=0.0) <= GOAL else 1
