"""Figures 1(b) and 2: error against time, by the theory's bounds and measured on a strongly convex problem."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from reports.figures import Figure, Panel, Points, Series, curve, points
from reports.measures import settled, time_to
from reports.records import Artefact, Run, published
from reports.statistics import Sample
from reports.tables import Column, Table
from syncline.records.store import RecordError
from syncline.timing import run_times
from syncline.timing.convergence import StronglyConvex, stale_progress
from syncline.timing.distributions import Exponential

Number = TypeVar("Number", float, Sample)

NUM_WORKERS = 8
MULTIPLE = 1.25  # of the remaining error: where it counts as reached; K = 1 begins at less than twice of it
# None of the constants is in the text. The bound falls by 1 % an update; at K = 1 a quarter of the first error is left.
PROBLEM = StronglyConvex(first_error=1.0, rate=0.05, smoothness=2.0, convexity=0.2, variance=1.0)
PROGRESS = {"k_sync": 1.0, "k_batch_sync": 1.0}  # of fresh gradients; stale ones:
STALE = stale_progress(gamma=0.1, fresh=1.0 / NUM_WORKERS)  # p_0 = 1 / P for exponential times (Lemma 6)


class Remaining(NamedTuple, Generic[Number]):
    """The remaining error."""

    error: Number
    seconds: Number  # until the error is first at most a quarter above it


def minimum(artefact: Artefact) -> dict[int, float]:
    """Seed -> the lowest test loss of a linear model.

    Raises:
        RecordError: it is not known for a seed.
    """
    found = {run.seed: run.metrics[-1]["loss"] for run in artefact.by("variant").get("minimum", [])}
    for seed in artefact.seeds:
        if seed not in found:
            raise RecordError(f"{artefact.name}: the run `minimum` of seed {seed} is missing; {artefact.command}")
    return found


def error_curve(run: Run, lowest: float) -> Points:
    """(times, test loss above the minimum)."""
    times, losses = run.curve("loss")
    return times, [loss - lowest for loss in losses]


def floor_of(run: Run, lowest: float) -> float:
    """The remaining error: its mean over the run's last quarter."""
    return settled(error_curve(run, lowest))


def time_to_floor(run: Run, lowest: float) -> float | None:
    """When the error is first at most a quarter above the remaining error."""
    return time_to(error_curve(run, lowest), MULTIPLE * floor_of(run, lowest), falling=True)


def measured(artefact: Artefact) -> dict[tuple[str, int], Remaining[Sample]]:
    """(variant, K) -> the remaining error, one a seed."""
    lowest = minimum(artefact)
    found = {}
    for (variant, _), runs in artefact.by("variant", "choice").items():
        if variant == "minimum":
            continue
        found[variant, runs[0].config["strategy"]["k"]] = Remaining(
            artefact.sample(runs, lambda run: floor_of(run, lowest[run.seed])),
            artefact.sample(runs, lambda run: time_to_floor(run, lowest[run.seed])),
        )
    return found


def theoretical(variant: str, k: int) -> Remaining[float]:
    """The floor of the bound, for exponential times of mean 1 s."""
    progress = PROGRESS.get(variant, STALE)
    an_update_s = run_times.run_time(variant, Exponential(1.0), k, NUM_WORKERS).seconds
    return Remaining(PROBLEM.floor(k, progress), an_update_s * PROBLEM.updates_to(MULTIPLE, k, progress))


# Figure 1(b).

ENDS = (("k_sync", NUM_WORKERS, "synchronous"), ("k_async", 1, "asynchronous"))


def fig1b(artefact: Artefact) -> Figure:
    lowest = minimum(artefact)
    bounds, runs = [], []
    for colour, (variant, k, name) in enumerate(ENDS):
        an_update_s = run_times.run_time(variant, Exponential(1.0), k, NUM_WORKERS).seconds
        times = np.geomspace(1.0, 3000.0, 200)
        progress = PROGRESS.get(variant, STALE)
        errors = [PROBLEM.error(k, at / an_update_s, progress) for at in times]
        bounds.append(Series(f"{name} (K = {k})", times.tolist(), errors, colour=colour))
        of_it = artefact.by("choice", variant=variant).get(f"K{k}", [])
        if of_it:
            curves = [_on_log_times(*error_curve(run, lowest[run.seed])) for run in of_it]
            runs.append(curve(f"{name} (K = {k})", curves, colour))
    panels = [
        Panel("virtual time, s", "bound on the error", bounds, "theory", log_x=True, log_y=True),
        Panel("virtual time, s", "test loss above its minimum", runs, "softmax regression", log_x=True, log_y=True),
    ]
    title = f"AdaSync, Figure 1(b): error against time, strongly convex, exponential times, {NUM_WORKERS} workers"
    return Figure(title, panels, published("adasync")["notes"]["fig1b"])


def _on_log_times(times: Sequence[float], errors: Sequence[float]) -> tuple[list[float], list[float]]:
    """The start moves to 1 s or, if the first evaluation is sooner, half way there: a logarithmic axis has no 0."""
    start = min(1.0, times[1] / 2) if len(times) > 1 else 1.0
    return [start, *times[1:]], list(errors)


# Figure 2.


def fig2(artefact: Artefact) -> Figure:
    names, found = published("adasync")["names"], measured(artefact)
    ks = sorted({k for _, k in found})
    bounds, runs = [], []
    for colour, variant in enumerate(run_times.VARIANTS):
        spots = [theoretical(variant, k) for k in ks]
        line = Series(names[variant], [left.seconds for left in spots], [left.error for left in spots], colour=colour)
        bounds += [line, Series("", line.x, line.y, "points", colour)]
        own = [found[variant, k] for k in ks if (variant, k) in found]
        if own:
            dots = points(names[variant], dict(enumerate(left.error for left in own)), colour)
            runs.append(replace(dots, x=[left.seconds.mean for left in own]))
    label = "virtual seconds to a quarter above the error left"
    panels = [
        Panel(label, "bound on the error left", bounds, "theory: K = 8 lowest, K = 1 highest", log_x=True, log_y=True),
        Panel(label, "test loss left above its minimum", runs, "softmax regression", log_x=True, log_y=True),
    ]
    title = f"AdaSync, Figure 2: error left against time to reach it, K = {', '.join(map(str, ks))}"
    return Figure(title, panels, published("adasync")["notes"]["fig2"])


def fig2_table(artefact: Artefact) -> Table:
    """Every point, and whether the error left falls as 1 / K."""
    names, found = published("adasync")["names"], measured(artefact)

    def to_first(key: tuple[str, int]) -> Sample | None:
        """Over the remaining error at K = 1; K-batch-async with K = 1 is K-async with K = 1."""
        variant, _ = key
        first = found.get((variant, 1)) or found.get((variant.replace("_batch", ""), 1))
        return None if first is None else found[key].error / first.error

    columns: list[Column[tuple[str, int]]] = [
        Column("variant", lambda key: f"{names[key[0]]}, K = {key[1]}"),
        Column("theory: error left / K = 1's", lambda key: 1.0 / key[1], 3),
        Column("ours: error left / K = 1's", to_first, 3),
        Column("ours: error left, nats", lambda key: found[key].error, 4),
        Column("theory, constants ours: error left", lambda key: theoretical(*key).error, 4),
        Column("ours: s to a quarter above it", lambda key: found[key].seconds),
        Column("theory, constants ours: s to a quarter above it", lambda key: theoretical(*key).seconds),
    ]
    return Table.of_artefact(artefact, "AdaSync, Figure 2", found, columns, published("adasync")["notes"]["fig2"])
