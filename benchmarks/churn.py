"""python -m benchmarks churn: what losing workers costs, foreseen and measured with real processes.

Workers of local runs are killed (SIGKILL) after exponential times, and come back by themselves. Each run is then made
in virtual time, where workers are away when the log says that they were. Its goodput stands beside the measured one.
"""

import argparse
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.live_run import LiveRun, kill
from benchmarks.measuring import simulated
from runners.measuring import in_virtual_time
from syncline.records.events import read_events

WORKERS, GRADIENT_S, SECONDS = 4, 0.1, 30.0
MEAN_UP_S = 4.0  # of a worker; the run makes as many updates as without losses in SECONDS
GOAL = 0.05
STRATEGIES = {
    "asp": (["strategy=asp"], 1),
    "ssp": (["strategy=ssp", "strategy.staleness=3"], 1),
    "dssp": (["strategy=dssp"], 1),
    "k_async": (["strategy=k_async", "strategy.k=2"], 2),
    "psp": (["strategy=psp", "strategy.c=3"], 3),
}


def measure(strategy: str, results: Path, seed: int) -> tuple[float, float, int]:
    """Goodput, measured and foreseen, and how often a worker was lost."""
    words, gradients = STRATEGIES[strategy]
    run = LiveRun(
        results,
        *words,
        f"seed={seed}",
        f"cluster.workers={WORKERS}",
        f"cluster.gradient_s=[{GRADIENT_S}]",
        "cluster.jitter={name: normal, mean: 1, std: 0.1}",
        f"max_updates={round(WORKERS * SECONDS / GRADIENT_S / gradients)}",
        *("model=softmax_regression", "epochs=null", "eval_every_epochs=1000", "runner.pace=absolute"),
    )
    run.wait_for_snapshot(0)
    luck = random.Random(seed)
    while run.process.poll() is None:
        time.sleep(luck.expovariate(WORKERS / MEAN_UP_S))
        if run.process.poll() is None:
            try:
                kill(run.pid("worker", luck.randrange(WORKERS)))
            except ProcessLookupError:
                continue  # it has not come back yet, or the run ends
    run.wait()
    log = read_events(run.folder / "events.arrow").to_pandas()
    away = defaultdict[int, list[float]](list)
    for row in log[log.kind.isin(["left", "joined"]) & (log["at"] > 0)].itertuples():
        away[row.worker].append(row.at)
    ends = {worker: times if len(times) % 2 == 0 else [*times, 1e6] for worker, times in away.items()}
    scenario = replace(run.config.scenario, absences=ends)
    foreseen = simulated(in_virtual_time(run.config, run.config.cluster, scenario))
    return run.summary()["goodput"], foreseen["goodput"], int((log.kind == "left").sum())


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks churn", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(STRATEGIES), default=list(STRATEGIES))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for strategy in options.only:
            measured, foreseen, lost = measure(strategy, Path(folder), options.seed)
            error = foreseen / measured - 1.0
            worst = max(worst, abs(error))
            about = f"goodput measured {measured:.3f}, foreseen {foreseen:.3f} ({error:+.1%})"
            print(f"{strategy:8} {lost:3} losses: {about}", flush=True)
    return 0 if worst <= GOAL else 1
