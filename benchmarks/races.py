"""python -m benchmarks races: races whose first two then run as real processes, on three local workers and on three
emulated hosts of 1 Gbit/s (Linux, as root). Their seconds to the target stand beside those of the runs in virtual time
with the same seed."""

import argparse
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.emulated import EmulatedHosts
from syncline.records.studies import WrittenStudy, read_study

WORDS = (
    *("race.confirm=2", "race.around={slowest: [], bandwidth: [], delay: []}", "dataset=digits"),
    *("epochs=10", "eval_every_epochs=0.2", "target.value=0.93", "cluster.workers=3"),
)
CASES = {
    "local": ("model=mlp", "cluster.gradient_s=[0.04,0.05,0.1]"),
    "hosts": (
        *("model=mlp", "model.hidden=[512,512]", "cluster.gradient_s=[0.1,0.12,0.25]"),
        *("cluster.network.sharing=fair", "cluster.network.later_weight=0.7"),
    ),
}
HOSTS = 4  # three workers and the server


def raced(case: str, seed: int, folder: Path) -> WrittenStudy:
    """A race to its answer; on emulated hosts it runs on the switch."""
    with ExitStack() as stack:
        words, on = [*WORDS, *CASES[case]], list[str]()
        if case == "hosts":
            hosts = stack.enter_context(EmulatedHosts(HOSTS))
            live = (*hosts.overrides, "runner.shards_on=own", "runner.pace=absolute", "runner.evaluate=during")
            quoted = shlex.join(live).replace('"', '\\"')
            words.append(f'race.live="{quoted}"')
            on = hosts.on(hosts.switch)
        first, results = 100 * seed, folder / f"{case}-{seed}"
        words += [f"scale.seeds=[{first}]", f"race.tune.seeds=[{first + 50},{first + 51}]", f"results={results}"]
        subprocess.run([*on, sys.executable, "-m", "syncline", "race", *words], check=True, stdout=subprocess.DEVNULL)
        (path,) = (results / "studies").glob("race-*.json")
        return read_study(path)


def lines(case: str, seed: int, study: WrittenStudy) -> Iterator[str]:
    assert study.answer is not None
    yield f"{case} round {seed}: {study.answer['sentence']}"
    for each in study.answer["live"]:
        foreseen, measured = each["foreseen"], each["measured"]
        error = f"{foreseen / measured - 1.0:+.1%}"
        yield f"  {each['label']:20} foreseen {foreseen:6.3f} s, measured {measured:6.3f} s ({error})"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks races", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default="", help=f"one of {', '.join(CASES)}")
    options = parser.parse_args(arguments)
    totals = []
    with tempfile.TemporaryDirectory() as folder:
        for case in [case for case in CASES if case.startswith(options.only)]:
            errors = list[float]()
            for seed in range(options.rounds):
                study = raced(case, seed, Path(folder))
                print(*lines(case, seed, study), sep="\n", flush=True)
                live = study.answer["live"] if study.answer else []
                errors += [abs(each["foreseen"] / each["measured"] - 1.0) for each in live]
            median, largest = statistics.median(errors), max(errors)
            totals.append(f"{case}: median error {median:.1%}, largest {largest:.1%}; n = {len(errors)} runs")
    print(*totals, sep="\n")
    return 0
