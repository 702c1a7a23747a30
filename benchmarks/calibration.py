"""python -m benchmarks calibration: does a profile that was fitted to ASP foresee what other strategies take?

In each round a cluster is calibrated (docs/calibration.md): unequal local workers, local workers that are slow for a
while and then not, and emulated hosts of 1 Gbit/s with messages of 5 MB (Linux, as root). SSP, DSSP, K-async and backup
workers, to which nothing is fitted, then run; their seconds an update are foreseen with the profile, and with the same
profile where each gradient's seconds are independent of those before.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.emulated import EmulatedHosts
from benchmarks.measuring import write_results
from runners.calibrate import asked_for, calibrate
from runners.commands import COMMANDS
from syncline.timing.calibration import Prediction

HOSTS = 4  # of three workers and the server
MEDIAN, LARGEST = 0.02, 0.05  # goals of the errors of a case
LOCAL = ("runner=local", "runner.pace=absolute", "model=resnet8", "cluster.workers=3")


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    words: tuple[str, ...]
    samples: int  # gradients of a worker
    on_hosts: bool = False


CASES: tuple[Case, ...] = (
    Case("unequal", (*LOCAL, "cluster.gradient_s=[0.06,0.09,0.12]"), 400),
    Case(
        "stragglers",
        (
            *(*LOCAL, "cluster.gradient_s=[0.04]"),
            "scenario.compute_delay={name: two_state, low: 0.0, high: 0.05, every: 24.0, lasting: 8.0}",
        ),
        1500,
    ),
    Case(
        "hosts",
        (
            *("runner.shards_on=own", "runner.pace=absolute", "cluster.workers=3"),
            *("model=resnet8", "model.width=64", "batch_size=2", "cluster.gradient_s=[0.15,0.2,0.3]"),
        ),
        150,
        on_hosts=True,
    ),
)


def measure(case: Case, seed: int, samples: int) -> list[Prediction]:
    """Calibrate and predict once, in a process of its own: on emulated hosts it runs on the switch."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        words, on = [*case.words], list[str]()
        if case.on_hosts:
            hosts = stack.enter_context(EmulatedHosts(HOSTS))
            words += hosts.overrides
            on = hosts.on(hosts.switch)
        words = [case.name, *words, f"seed={seed}", f"results={folder}/results", f"--samples={samples}"]
        made = Path(folder) / "predictions.json"
        command = [*on, sys.executable, "-m", "benchmarks", "calibration", "--into", str(made), "--", *words]
        subprocess.run([*command, "--config-dir", folder], check=True)
        return [Prediction(**each) for each in json.loads(made.read_text())]


def line(case: Case, seed: int, each: Prediction) -> str:
    return (
        f"{case.name:10} round {seed} {each.strategy:8} measured {1e3 * each.measured_s:7.2f} ms an update, foreseen "
        f"{1e3 * each.foreseen_s:7.2f} ({each.error:+.1%}), with independent gradients ({each.independent_error:+.1%})"
    )


def total(case: Case, predictions: Sequence[Prediction]) -> tuple[str, bool]:
    """A line of all rounds, and whether the goals are reached."""
    errors = [abs(each.error) for each in predictions]
    others = [abs(each.independent_error) for each in predictions]
    median, largest = statistics.median(errors), max(errors)
    words = (
        f"{case.name:10} median error {median:.1%}, largest {largest:.1%}; with independent gradients "
        f"{statistics.median(others):.1%} and {max(others):.1%}; n = {len(errors)} runs"
    )
    return words, median <= MEDIAN and largest <= LARGEST


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks calibration", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help=f"one of {', '.join(case.name for case in CASES)}")
    parser.add_argument(
        "--samples", type=int, help="gradients of a worker; default: " + str([c.samples for c in CASES])
    )
    parser.add_argument("--output", type=Path, default=Path("results/calibration"))
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)  # calibrate once, with the words that follow
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.into:
        asked = COMMANDS["calibrate"].parser("calibrate").read(options.words)
        options.into.write_text(json.dumps([asdict(each) for each in calibrate(asked_for(asked))]))
        return 0
    found, totals, is_good = [], [], True
    for case in [case for case in CASES if case.name.startswith(options.only)]:
        of_case = list[Prediction]()
        for seed in range(options.rounds):
            made = measure(case, seed, options.samples or case.samples)
            print(*(line(case, seed, each) for each in made), sep="\n", flush=True)
            found += [{"case": case.name, "round": seed, "load": os.getloadavg()[0], **asdict(each)} for each in made]
            of_case += made
        words, reached = total(case, of_case)
        totals.append(words)
        is_good &= reached
    print(*totals, sep="\n")
    write_results(options.output / "runs.json", {"runs": found})
    return 0 if is_good else 1
