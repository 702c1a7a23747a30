"""python -m benchmarks.kills --runs 50: small runs of real processes, in each of which a random worker is killed.

Every run must end by itself, finished, with every sample used once, and leave no process behind.
"""

import argparse
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.live_run import LiveRun, is_alive, kill
from syncline.records.events import read_events

STRATEGIES = ("asp", "ssp", "dssp", "bsp")
WORKERS = 3
UPDATES = 900  # gradients: some 6 s
BATCH = 32


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one run."""

    strategy: str
    killed_after_s: float  # from the first sign of life of all workers
    was_alive: bool  # the worker had not ended before it was killed
    rejoined: int  # workers that joined again
    restarts: int  # of the whole run
    seconds: float


def kill_once(strategy: str, seed: int, results: Path) -> Outcome:
    """One run and one kill, both determined by the seed.

    Raises:
        AssertionError: the run did not end correctly.
    """
    luck = random.Random(seed)
    begun = time.monotonic()
    run = LiveRun(
        results,
        f"strategy={strategy}",
        f"seed={seed}",
        f"cluster.workers={WORKERS}",
        "cluster.gradient_s=[0.02]",
        "runner.pace=absolute",
        "runner.checkpoint_every_epochs=0.5",
        f"batch_size={BATCH}",
        f"max_updates={UPDATES if strategy != 'bsp' else UPDATES // WORKERS}",
        "epochs=null",
    )
    run.wait_for_snapshot(0)
    after_s = luck.uniform(0.0, 5.0)
    time.sleep(after_s)
    pid = run.pid("worker", luck.randrange(WORKERS))
    was_alive = is_alive(pid)
    if was_alive:
        kill(pid)
    run.wait()
    summary = run.summary()
    assert summary["status"] == "finished", summary
    assert summary["gradients_used"] == UPDATES, summary
    assert run.has_ended_cleanly(), run.left_over()
    log = read_events(run.folder / "events.arrow").to_pandas()
    for worker in range(WORKERS):
        iterations = log[(log.kind == "pushed") & (log.worker == worker)].value.astype(int).tolist()
        assert iterations == list(range(len(iterations))), (worker, iterations)
    rejoined = int((log.kind == "joined").sum())
    return Outcome(strategy, after_s, was_alive, rejoined, summary["restarts"], time.monotonic() - begun)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    options = parser.parse_args()
    outcomes, failed = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.runs):
            seed = options.seed + number
            strategy = STRATEGIES[number % len(STRATEGIES)]
            try:
                outcome = kill_once(strategy, seed, Path(folder))
            except AssertionError as error:
                failed += 1
                print(f"{number + 1:3} {strategy:5} seed {seed} FAILED: {error}", flush=True)
                continue
            outcomes.append(outcome)
            print(
                f"{number + 1:3} {strategy:5} seed {seed} killed after {outcome.killed_after_s:.2f} s"
                f"{'' if outcome.was_alive else ' (too late)'}, {outcome.rejoined} rejoined, "
                f"{outcome.restarts} restarts, {outcome.seconds:.0f} s",
                flush=True,
            )
    alive = sum(outcome.was_alive for outcome in outcomes)
    rejoined, restarts = sum(outcome.rejoined for outcome in outcomes), sum(outcome.restarts for outcome in outcomes)
    print(f"{len(outcomes)} of {options.runs} runs ended correctly: {alive} workers were killed alive, ", end="")
    print(f"{rejoined} rejoined before the end, {restarts} runs restarted from a checkpoint")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
