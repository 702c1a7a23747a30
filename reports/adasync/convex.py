"""Figures 1(b) and 2: error against time where theory says what it is, and a strongly convex problem beside it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from reports.exhibits import Exhibit
from reports.figures import Figure, Panel, Series, curve, points
from reports.records import Artefact, Run, published
from reports.statistics import Sample, paired_ratio
from reports.tables import Column, Table, Value
from syncline.records.store import RecordError
from syncline.timing import run_times
from syncline.timing.convergence import StronglyConvex, stale_progress
from syncline.timing.distributions import Exponential

NUM_WORKERS = 8
SETTLED = 0.25  # of a run, its end: the error left is the mean over it
MULTIPLE = 1.25  # of the error that is left: when it is reached; K = 1 begins at less than twice of it
# None of the constants is in the text. The bound falls by 1 % an update; at K = 1 a quarter of the first error is left.
PROBLEM = StronglyConvex(first_error=1.0, rate=0.05, smoothness=2.0, convexity=0.2, variance=1.0)
PROGRESS = {"k_sync": 1.0, "k_batch_sync": 1.0}  # of fresh gradients; stale ones:
STALE = stale_progress(gamma=0.1, fresh=1.0 / NUM_WORKERS)  # p_0 = 1 / P for exponential times (Lemma 6)


def minimum(artefact: Artefact) -> dict[int, float]:
    """Seed -> the test loss that nothing linear falls below.

    Raises:
        RecordError: it is not known for a seed.
    """
    found = {run.seed: run.metrics[-1]["loss"] for run in artefact.rows().get("minimum", [])}
    for seed in artefact.seeds:
        if seed not in found:
            raise RecordError(f"{artefact.name}: the run `minimum` of seed {seed} is missing; {artefact.command}")
    return found


def error_curve(run: Run, lowest: float) -> tuple[list[float], list[float]]:
    """(times, test loss above the minimum)."""
    times, losses = run.curve("loss")
    return times, [loss - lowest for loss in losses]


def floor_of(run: Run, lowest: float) -> float:
    """What is left of the error: its mean over the run's last quarter."""
    times, errors = error_curve(run, lowest)
    settled = [error for at, error in zip(times, errors, strict=True) if at >= (1.0 - SETTLED) * times[-1]]
    return math.fsum(settled) / len(settled)


def time_to_floor(run: Run, lowest: float) -> float | None:
    """When the error first is at most a quarter above what is left of it at the end."""
    goal = MULTIPLE * floor_of(run, lowest)
    times, errors = error_curve(run, lowest)
    return next((at for at, error in zip(times, errors, strict=True) if error <= goal), None)


def measured(artefact: Artefact) -> dict[tuple[str, int], tuple[Sample, Sample]]:
    """(variant, K) -> what is left of the error, and the virtual seconds to a quarter above it; one a seed."""
    lowest = minimum(artefact)
    found = {}
    for label, runs in artefact.rows().items():
        if label == "minimum":
            continue
        strategy = runs[0].config["strategy"]
        left = artefact.sample(runs, lambda run: floor_of(run, lowest[run.seed]))
        reached = artefact.sample(runs, lambda run: time_to_floor(run, lowest[run.seed]))
        found[strategy["name"], strategy["k"]] = (left, reached)
    return found


def theoretical(variant: str, k: int) -> tuple[float, float]:
    """The floor of the bound, and the seconds to a quarter above it, for exponential times of mean 1 s."""
    progress = PROGRESS.get(variant, STALE)
    an_update_s = run_times.run_time(variant, Exponential(1.0), k, NUM_WORKERS).seconds
    return PROBLEM.floor(k, progress), an_update_s * PROBLEM.updates_to(MULTIPLE, k, progress)


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
        of_it = artefact.rows().get(f"{variant}/K{k}", [])
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
    """With the start at 1 s or, where it is evaluated sooner, half way there: no logarithm shows 0."""
    return [min(1.0, times[1] / 2), *times[1:]], list(errors)


# Figure 2.


def fig2(artefact: Artefact) -> Figure:
    names, found = published("adasync")["names"], measured(artefact)
    ks = sorted({k for _, k in found})
    bounds, runs = [], []
    for colour, variant in enumerate(run_times.VARIANTS):
        spots = [theoretical(variant, k) for k in ks]
        line = Series(names[variant], [at for _, at in spots], [left for left, _ in spots], colour=colour)
        bounds += [line, Series("", line.x, line.y, "points", colour)]
        own = [found[variant, k] for k in ks if (variant, k) in found]
        if own:
            dots = points(names[variant], dict(enumerate(left for left, _ in own)), colour)
            runs.append(replace(dots, x=[reached.mean for _, reached in own]))
    x_label = "virtual seconds to a quarter above the error left"
    panels = [
        Panel(
            x_label, "bound on the error left", bounds, "theory: K = 8 lowest, K = 1 highest", log_x=True, log_y=True
        ),
        Panel(x_label, "test loss left above its minimum", runs, "softmax regression", log_x=True, log_y=True),
    ]
    title = f"AdaSync, Figure 2: error left against time to reach it, K = {', '.join(map(str, ks))}"
    return Figure(title, panels, published("adasync")["notes"]["fig2"])


def fig2_table(artefact: Artefact) -> Table:
    """Every point, and whether the error left falls as 1 / K."""
    names, found = published("adasync")["names"], measured(artefact)
    body: list[list[Value]] = []
    for (variant, k), (left, reached) in found.items():
        bound, seconds = theoretical(variant, k)
        body.append(
            [f"{names[variant]}, K = {k}", 1.0 / k, _to_first(found, variant, left), left, bound, reached, seconds]
        )
    columns = [
        Column("variant"),
        Column("theory: error left / K = 1's", 3),
        Column("ours: error left / K = 1's", 3),
        Column("ours: error left, nats", 4),
        Column("theory, constants ours: error left", 4),
        Column("ours: s to a quarter above it", 1),
        Column("theory, constants ours: s to a quarter above it", 1),
    ]
    notes = [*published("adasync")["notes"]["fig2"], *artefact.closing_notes]
    return Table(f"AdaSync, Figure 2, at scale {artefact.scale}", columns, body, notes)


def _to_first(found: Mapping[tuple[str, int], tuple[Sample, Sample]], variant: str, left: Sample) -> Sample | None:
    """Over the error that K = 1 leaves; K-batch-async with K = 1 is K-async with K = 1."""
    first = found.get((variant, 1)) or found.get((variant.replace("_batch", ""), 1))
    return None if first is None else paired_ratio(left.values, first[0].values)


def show_fig1b(artefact: Artefact) -> Exhibit:
    return {"": fig1b(artefact)}


def show_fig2(artefact: Artefact) -> Exhibit:
    return {"": fig2(artefact), "table": fig2_table(artefact)}
