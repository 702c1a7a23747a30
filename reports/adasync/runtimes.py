"""Simulated seconds of an update, and the formulas that they are compared with."""

from collections.abc import Callable, Mapping
from typing import Any

from reports.records import Artefact, Run, published
from reports.statistics import Sample
from syncline.timing import run_times
from syncline.timing.distributions import Distribution, ShiftedExponential, distribution

VARIANTS = ("k_sync", "k_async", "k_batch_async", "k_batch_sync")
Times = dict[tuple[str, int], dict[str, Sample]]  # (distribution, workers or K) -> strategy -> seconds an update


def run_time_of(config: Mapping[str, Any]) -> Distribution:
    """X: seconds of a gradient on the cluster `unit`."""
    return distribution("cluster.jitter", config["cluster"]["jitter"])


def bound(variant: str, of: Distribution, k: int, num_workers: int) -> run_times.RunTime:
    """The paper's formula, the smaller of its two bounds where it has two."""
    formula = run_times.run_time(variant, of, k, num_workers)
    if variant == "k_async" and formula.claim == "upper bound" and isinstance(of, ShiftedExponential):
        other = run_times.k_async_shifted_bound_s(of, k, num_workers)
        return run_times.RunTime(min(formula.seconds, other), formula.claim)
    return formula


def times_by(artefact: Artefact, place: Callable[[Run], int]) -> Times:
    """E[T], seconds an update, by distribution and place."""
    times: Times = {}
    for runs in artefact.rows().values():
        config = runs[0].config
        by_strategy = times.setdefault((config["cluster"]["jitter"]["name"], place(runs[0])), {})
        by_strategy[config["strategy"]["name"]] = artefact.sample(runs, lambda run: run.seconds_an_update)
    return times


def distributions(artefact: Artefact) -> dict[str, Distribution]:
    """Name -> X, in the order of the plan."""
    return {run.config["cluster"]["jitter"]["name"]: run_time_of(run.config) for run in artefact.runs}


def shapes(artefact: Artefact) -> str:
    """A note: the distributions with their parameters."""
    names = published("adasync")["names"]
    shown = {}
    for run in artefact.runs:
        jitter = run.config["cluster"]["jitter"]
        parameters = {key: value for key, value in jitter.items() if key != "name"}
        parameters.setdefault("mean", run_time_of(run.config).expectation())
        listed = ", ".join(f"{key} {value:g}" for key, value in parameters.items())
        shown[jitter["name"]] = f"{names[jitter['name']]} ({listed})"
    return (
        f"A gradient's seconds, each drawn on its own: {', '.join(shown.values())}; messages take none. The paper's "
        "plots have no parameters in the text; these are ours."
    )


def largest(deviations: Mapping[str, float], what: str = "The simulated mean") -> str:
    """A note: where the mean lies furthest from the formula.

    Args:
        deviations: place -> per cent.
    """
    if not deviations:
        return f"{what} cannot be compared: no runs."
    where, value = max(deviations.items(), key=lambda pair: abs(pair[1]))
    return f"{what} is at most {abs(value):.2f} % from the formula ({where})."
