"""Artefacts of made-up runs, for the tests of claims and reports: a composed experiment, and records in memory.

Every number is drawn from a distribution that has nothing to do with the run's row: each comparison is one of a
strategy with itself.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from in_memory import RunInMemory

from reports.records import Artefact
from runners.planning import experiment_plan
from syncline.metrics import LOWER_IS_BETTER
from syncline.plan import Plan

PLACES = np.linspace(0.0, 1.0, 9)  # of the evaluations, as parts of a run
NOBODY_WAITS = ("asp", "ssp", "dssp")  # an update of theirs takes one gradient, and a step of all workers as many
# (value before training, at the end, deviation of the end) by metric; any other is a fraction.
LOSSES = {"loss": (2.3, 1.0, 0.05), "bound": (540.0, 200.0, 5.0), "bits_per_character": (8.0, 5.0, 0.1)}
FRACTION = (0.1, 0.6, 0.05)
AUC = (0.5, 0.65, 0.03)
FIXED = 0.55  # in place of every target that is a fraction: some seven of ten runs reach it
# Targets of the experiments whose files leave them out until tuning runs are made; train_loss falls to 1.31 to 1.36.
TARGETS: Mapping[str, Any] = {
    "backup/table1": FIXED,
    "backup/fig1": FIXED,
    "backup/fig3": FIXED,
    "backup/draw": 215.0,
    "adasync/fig11": dict.fromkeys(("delay_20ms/k_sync", "delay_20ms/k_async"), 1.33),
    "dssp/table1": FIXED,
    "dssp/fig3": dict.fromkeys(("alexnet", "resnet50", "resnet110"), FIXED),
    "dssync/table4": {
        f"W{workers}/{task}": FIXED for workers in (4, 16) for task in ("cifar10", "cifar100", "squad", "criteo")
    },
}


@cache
def plan(name: str, scale: str) -> Plan:
    return experiment_plan([f"+experiment={name}", f"scale={scale}", "scale.seeds=[0]"], False)[0]


def study(
    name: str,
    rng: np.random.Generator,
    *,
    scale: str = "laptop",
    num_seeds: int = 5,
    learns: bool = True,
    has_targets: bool = True,
) -> Artefact:
    """An artefact whose numbers have nothing to do with its rows.

    Args:
        learns: False: all stay at chance.
        has_targets: False: those of the experiment's file, if there are any.
    """
    runs = [
        made(entry.label, seed, config, entry.config.metrics if entry.config.gradients else (), rng, learns)
        for entry in plan(name, scale).entries
        for config in [as_dict(name, scale, entry.label)]
        for seed in range(num_seeds)
    ]
    fixed = {"targets": {scale: TARGETS[name]}} if has_targets and name in TARGETS else {}
    return Artefact(name, scale, {**plan(name, scale).report, **fixed}, runs, [])


@cache
def as_dict(name: str, scale: str, label: str) -> dict[str, Any]:
    return next(entry.config.as_dict() for entry in plan(name, scale).entries if entry.label == label)


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
        "gradients_used": int(steps) * workers,
        "gradients_discarded": int(0.1 * steps),
        "mean_staleness": workers - 1.0,
        "staleness": {"0": 10, str(workers - 1): 10},
        "max_lead": 4,
        "waits_for": [[0.0, 0, 2], [0.5 * time_s, 40, 5]],
        "time_kind": "virtual",
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
