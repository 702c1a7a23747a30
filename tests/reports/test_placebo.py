"""Controls of the predicates: on runs that are all drawn from one distribution, whatever their row, no claim of a
difference holds, and none of an equality fails, more often than its level; on runs at chance none is judged.

Every experiment that a claim needs is composed at scale laptop; its records are made up. A run's curve, its times and
its updates a worker have the same distribution in all rows, so that each compares a strategy with itself.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_memory import RunInMemory
from scipy import stats

from reports.adasync.learning import mean_error, samples
from reports.claims import LEARNED, NOT_RUN, Claim, Verdict, judge
from reports.effects import FAILS, HOLDS, Effect, judged, of_difference
from reports.exhibits import Paper
from reports.looks import ALPHA
from reports.papers import PAPERS
from reports.records import Artefact
from reports.statistics import Sample
from runners.planning import experiment_plan
from syncline.metrics import LOWER_IS_BETTER
from syncline.plan import Plan

pytestmark = pytest.mark.statistical

NUM_STUDIES, NUM_SEEDS = 200, 5
TARGET = 0.55  # in place of every target: some seven of ten runs reach it
PLACES = np.linspace(0.0, 1.0, 9)  # of the evaluations, as parts of a run
NOBODY_WAITS = ("asp", "ssp", "dssp")  # an update of theirs takes one gradient, and a step of all workers as many
# (value before training, at the end, deviation of the end) by metric; any other is a fraction.
LOSSES = {"loss": (2.3, 1.0, 0.05), "bound": (540.0, 200.0, 5.0), "bits_per_character": (8.0, 5.0, 0.1)}
FRACTION = (0.1, 0.6, 0.05)
AUC = (0.5, 0.65, 0.03)

LEARNED_CLAIMS = [(paper, claim) for paper in PAPERS.values() for claim in paper.claims if claim.basis == LEARNED]


@cache
def plan(name: str) -> Plan:
    return experiment_plan([f"+experiment={name}", "scale=laptop", "scale.seeds=[0]"], False)[0]


def without_targets(report: Any) -> Any:
    """Every number of a key `targets` is TARGET."""
    if isinstance(report, Mapping):
        return {key: without_targets(value) for key, value in report.items()}
    return TARGET if isinstance(report, int | float) else report


def study(name: str, rng: np.random.Generator, learns: bool = True) -> Artefact:
    """An artefact whose numbers have nothing to do with its rows."""
    runs = [
        made(entry.label, seed, config, entry.config.metrics if entry.config.gradients else (), rng, learns)
        for entry in plan(name).entries
        for config in [as_dict(name, entry.label)]
        for seed in range(NUM_SEEDS)
    ]
    report = plan(name).report
    return Artefact(name, "laptop", report | {"targets": without_targets(report.get("targets"))}, runs, [])


@cache
def as_dict(name: str, label: str) -> dict[str, Any]:
    return next(entry.config.as_dict() for entry in plan(name).entries if entry.label == label)


def made(
    label: str, seed: int, config: Mapping[str, Any], metrics: tuple[str, ...], rng: np.random.Generator, learns: bool
) -> RunInMemory:
    time_s = 100.0 * (1.0 + 0.05 * rng.standard_normal())
    steps = 1000.0 * (1.0 + 0.02 * rng.standard_normal())
    strategy, workers = config["strategy"]["name"], config["cluster"]["workers"]
    summary: dict[str, Any] = {
        "status": "finished",
        "metric": metrics[0] if metrics else "accuracy",
        "time_s": time_s,
        "updates": steps * (workers if strategy in NOBODY_WAITS else 1),
        "epochs": 10.0,
        "mean_staleness": workers - 1.0,
        "max_lead": 4,
        "best": None,
        "final": None,
    }
    if not metrics:
        return RunInMemory(label, seed, Path(), summary, config)
    shape = 1.0 - np.exp(-4.0 * rng.uniform(0.7, 1.3) * PLACES)
    curves = {metric: curve(metric, shape, rng, learns, label == "minimum") for metric in metrics}
    rows = [
        {"time_s": time_s * at, "epoch": 10.0 * at, "updates": 1000 * at, "samples": 10_000 * at}
        | {metric: values[place] for metric, values in curves.items()}
        | {"train_loss": None if at == 0.0 else 2.3 - shape[place], "learning_rate": 0.1}
        for place, at in enumerate(PLACES.tolist())
    ]
    pick = {metric: (min if metric in LOWER_IS_BETTER else max)(values) for metric, values in curves.items()}
    summary |= {"best": {metric: {"value": value} for metric, value in pick.items()}}
    summary |= {"final": {metric: values[-1] for metric, values in curves.items()}}
    return RunInMemory(label, seed, Path(), summary, config, rows)


def curve(metric: str, shape: Any, rng: np.random.Generator, learns: bool, is_minimum: bool) -> list[float]:
    begin, end, std = LOSSES.get(metric, AUC if metric == "auc" else FRACTION)
    if is_minimum:  # of Figure 2: what the others' losses are measured from
        return [0.1] * len(shape)
    height = (end + std * rng.standard_normal() if learns else begin) - begin
    noise = 0.2 * std * rng.standard_normal(len(shape))
    noise[0] = 0.0
    return [float(value) for value in begin + height * shape + noise]


def verdict_of(paper: Paper, claim: Claim, artefacts: Mapping[str, Artefact]) -> Verdict:
    return judge(replace(claim, contradiction=""), paper.claim_text(claim.key), "laptop", artefacts.__getitem__)


def allowed(effects: list[Effect]) -> set[str]:
    """The verdicts that are true of two sides that are alike: none where the region ends just there."""
    compared = [effect.holds_if_equal for effect in effects if effect.equal is not None]
    if any(is_inside is False for is_inside in compared):
        return {FAILS}
    return {HOLDS} if all(compared) else set()


def test_no_difference_is_found_between_a_strategy_and_itself() -> None:
    """The bound is passed by chance once in 10,000 claims."""
    rng = np.random.default_rng(0)
    names = sorted({name for paper in PAPERS.values() for claim in paper.claims for name in claim.artefacts})
    counts: dict[str, Counter[str]] = {}
    true_of: dict[str, set[str]] = {}
    for _ in range(NUM_STUDIES):
        artefacts = {name: study(name, rng) for name in names}
        for paper in PAPERS.values():
            for claim in paper.claims:
                found = verdict_of(paper, claim, artefacts)
                assert found.verdict != NOT_RUN, (claim.key, found.because)
                if any(effect.equal is not None for effect in found.effects):
                    counts.setdefault(claim.key, Counter())[found.verdict] += 1
                    true_of[claim.key] = allowed(found.effects)
    most = stats.binom.isf(1e-4, NUM_STUDIES, ALPHA)
    wrong = {
        f"{key} {verdict}": num
        for key, counted in counts.items()
        for verdict, num in counted.items()
        if verdict in {HOLDS, FAILS} - true_of[key] and num > most
    }
    assert wrong == {}
    assert min(map(Counter.total, counts.values())) > 0.9 * NUM_STUDIES, "the control is of runs that can be judged"
    assert len(counts) >= 33


def test_the_control_finds_a_comparison_with_the_best_of_several_rivals() -> None:
    """K = 8 against the lowest of three under each seed: a minimum over noise, which no K can equal."""

    def best_of_three(artefact: Artefact) -> list[Effect]:
        errors = samples(artefact, mean_error)
        own, *others = (errors["no_delay", "k_sync", which].present for which in ("K8", "K1", "K2", "K4"))
        lowest = Sample(tuple(map(min, *others)))
        return [of_difference("K = 8 less the best other", Sample(tuple(own)), lowest, at_most=0.0)]

    rng = np.random.default_rng(1)
    found = Counter(judged(best_of_three(study("adasync/fig9", rng)), ALPHA)[0].verdict for _ in range(NUM_STUDIES))
    assert found[FAILS] > stats.binom.isf(1e-4, NUM_STUDIES, ALPHA)


def test_runs_at_chance_judge_no_claim_about_learning() -> None:
    rng = np.random.default_rng(0)
    artefacts = {name: study(name, rng, learns=False) for _, claim in LEARNED_CLAIMS for name in claim.artefacts}
    for paper, claim in LEARNED_CLAIMS:
        found = verdict_of(paper, claim, artefacts)
        assert found.verdict == NOT_RUN, (claim.key, found.verdict)
        assert re.search("^at chance: |a target that a strategy reaches", found.because), found.because
