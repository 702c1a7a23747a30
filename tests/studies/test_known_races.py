"""Small real races on clusters where theory knows who is first: they name it or nobody.

A convex problem (multinomial regression on digits), no network. Rates are tuned on seeds of each race's own, and so are
the seeds that judge.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from runners.one import run_one
from runners.racing import declared_races
from runners.study import Made
from syncline.studies.raced import Raced
from syncline.studies.study import Stage

PROBLEM = [
    *("model=softmax_regression", "dataset=digits", "optimizer.momentum=0", "optimizer.lr=0.4"),
    *("max_time_s=4", "eval_every_epochs=0.2", "target.value=0.88", "race.tune.points=3", "race.looks=[4,8]"),
    *("race.around={}", "cluster=unit", "cluster.workers=4", "cluster.gradient_s=[0.02]"),
]
EXPONENTIAL = "cluster.jitter={name: exponential, mean: 1}"


def raced(results: Path, number: int, *words: str) -> Raced:
    """The answer, with the runs made in this process."""
    seeds = f"scale.seeds=[{100 * number}]", f"race.tune.seeds=[{100 * number + 50},{100 * number + 51}]"
    (declared, *_), _ = declared_races([*PROBLEM, *words, *seeds])
    made = Made(results)
    while isinstance(step := declared.study.next(made.outcome), Stage):
        for trial in step.trials:
            if made.outcome(trial).status == "absent":
                run_one(made.entry(trial).config, results, lambda progress: None)
    answer: Raced = step.result
    return answer


def lasting(found: Raced) -> bool:
    """One worker is ten times slower: who waits for it in every step is not first."""
    return found.standings[0].label != "bsp" and found.verdict == "first"


def equal(found: Raced) -> bool:
    """Equal workers without noise: an update takes the same time of however many, and a larger one is no worse."""
    return found.verdict != "first" or found.standings[0].label == "k_sync k=4"


def memoryless(found: Raced) -> bool:
    """Exponential times: K gradients of any workers come as soon as K of one version, and those are fresh; of K
    different workers they come later (AdaSync, Lemmas 1 to 4)."""
    return found.verdict != "first" or found.standings[0].label == "k_batch_sync"


CASES: dict[str, tuple[int, Callable[[Raced], bool], list[str]]] = {
    "lasting": (2, lasting, ["strategy=bsp,backup", "scenario.slow={0: 10}"]),
    "equal": (4, equal, ["strategy=k_sync", "strategy.k=2,4"]),
    "memoryless": (4, memoryless, ["strategy=k_sync,k_batch_sync,k_async", "strategy.k=3", EXPONENTIAL]),
}


@pytest.mark.statistical
@pytest.mark.parametrize("case", CASES)
def test_small_races_name_the_one_that_theory_names_or_nobody(case: str, tmp_path: Path) -> None:
    num, is_right, words = CASES[case]
    found = [raced(tmp_path, number, *words) for number in range(num)]
    assert all(map(is_right, found)), [(each.verdict, each.sentence) for each in found]
