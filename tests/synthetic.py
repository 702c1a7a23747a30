"""Artefacts of made-up runs, for the tests of claims and reports: a composed experiment, and records in memory.

Every number is drawn from a distribution that has nothing to do with the run's row: each comparison is one of a
strategy with itself.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from written import RunInMemory, made_run

from reports.records import OWN, Artefact
from runners.planning import chosen_experiment, experiment_plan
from syncline.metrics import LOWER_IS_BETTER
from syncline.plan import Plan

PLACES = np.linspace(0.0, 1.0, 9)  # of the evaluations, as parts of a run
NOBODY_WAITS = ("asp", "ssp", "dssp")  # an update of theirs takes one gradient, and a step of all workers as many
# (value before training, at the end, deviation of the end) by metric; any other is a fraction.
LOSSES = {"loss": (2.3, 1.0, 0.05), "bound": (540.0, 200.0, 5.0), "bits_per_character": (8.0, 5.0, 0.1)}
FRACTION = (0.1, 0.6, 0.05)
AUC = (0.5, 0.65, 0.03)
OFTEN, ALWAYS = 0.55, 0.4  # targets of a fraction: some seven of ten runs reach it, or all
OTHER_TARGETS = {"backup/draw": 215.0, "adasync/fig11": 1.33}  # nats; a training loss, which falls to 1.31 to 1.36


@cache
def plan(name: str, scale: str) -> Plan:
    return experiment_plan([f"+experiment={name}", f"scale={scale}", "scale.seeds=[0]"], False)[0]


def targets(name: str, scale: str, fraction: float) -> Any:
    """As the experiment's file has them, with this number for every fraction; None: it has none."""
    declared = (plan(name, scale).report.get("targets") or {}).get(scale)
    return _replaced(declared, OTHER_TARGETS.get(name, fraction))


def _replaced(declared: Any, target: float) -> Any:
    if isinstance(declared, Mapping):
        return {key: _replaced(of_part, target) for key, of_part in declared.items()}
    return None if declared is None else target


def study(
    name: str,
    rng: np.random.Generator,
    *,
    scale: str = "laptop",
    num_seeds: int = 5,
    learns: bool = True,
    fraction: float = OFTEN,
    has_arms: bool = False,
) -> Artefact:
    """An artefact whose numbers have nothing to do with its rows.

    Args:
        learns: False: all stay at chance.
        fraction: the target of every fraction.
        has_arms: the rows whose rates are tuned learn again, each with its own.
    """
    entries = {entry.label: entry.config for entry in plan(name, scale).entries}
    tuned = tuned_rows(name, scale) if has_arms else ()
    own = {f"{label}/{OWN}": config for label, config in entries.items() if {label, label.split("/")[-1]} & {*tuned}}
    runs = [
        made(label, seed, as_dict(name, scale, label), config.metrics if config.gradients else (), rng, learns)
        for label, config in {**entries, **own}.items()
        for seed in range(num_seeds)
    ]
    report = plan(name, scale).report | {"targets": {scale: targets(name, scale, fraction)}}
    return Artefact(name, scale, report, runs, [])


@cache
def as_dict(name: str, scale: str, label: str) -> dict[str, Any]:
    plain = label.removesuffix(f"/{OWN}")
    return next(entry.config.as_dict() for entry in plan(name, scale).entries if entry.label == plain)


@cache
def tuned_rows(name: str, scale: str) -> tuple[str, ...]:
    """Labels, or their last parts, of the experiment's key `tune`; none where all rows share the rate that is tuned."""
    content = chosen_experiment([f"+experiment={name}", f"scale={scale}"]).content
    return tuple((content.get("tune") or {}).get("rows") or ()) if content.get("arms") else ()


def made(
    label: str, seed: int, config: Mapping[str, Any], metrics: tuple[str, ...], rng: np.random.Generator, learns: bool
) -> RunInMemory:
    time_s = 100.0 * (1.0 + 0.05 * rng.standard_normal())
    steps = 1000.0 * (1.0 + 0.02 * rng.standard_normal())
    strategy, workers = config["strategy"]["name"], config["cluster"]["workers"]
    summary: dict[str, Any] = {
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
        "best": None,
        "final": None,
    }
    if not metrics:
        return made_run(label, seed, config, summary)
    shape = 1.0 - np.exp(-4.0 * rng.uniform(0.7, 1.3) * PLACES)
    curves = {metric: curve(metric, shape, rng, learns, label == "minimum") for metric in metrics}
    rows = [
        {"time_s": time_s * at, "epoch": 10.0 * at, "updates": 1000 * at, "samples": 10_000 * at}
        | {metric: values[place] for metric, values in curves.items()}
        | {"train_loss": None if at == 0.0 else 2.3 - shape[place], "learning_rate": 0.1}
        for place, at in enumerate(PLACES.tolist())
    ]
    best = {
        metric: (min if metric in LOWER_IS_BETTER else max)(rows, key=lambda row, of=metric: row[of])
        for metric in curves
    }
    summary |= {"best": {metric: {"value": row[metric], "epoch": row["epoch"]} for metric, row in best.items()}}
    summary |= {"final": {metric: values[-1] for metric, values in curves.items()}}
    return made_run(label, seed, config, summary, rows)


def curve(metric: str, shape: Any, rng: np.random.Generator, learns: bool, is_minimum: bool) -> list[float]:
    begin, end, std = LOSSES.get(metric, AUC if metric == "auc" else FRACTION)
    if is_minimum:  # of Figure 2: what the others' losses are measured from
        return [0.1] * len(shape)
    height = (end + std * rng.standard_normal() if learns else begin) - begin
    noise = 0.2 * std * rng.standard_normal(len(shape))
    noise[0] = 0.0
    return [float(value) for value in begin + height * shape + noise]
