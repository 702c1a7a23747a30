"""Run times: simulated seconds of an update against the paper's formulas. Figures 6 and 7, the table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reports.figures import Figure, Panel, Series, points
from reports.records import Artefact, Run, published
from reports.statistics import Sample, ratio
from reports.tables import Column, Table
from syncline.timing import run_times
from syncline.timing.distributions import Distribution, ShiftedExponential, distribution

VARIANTS = ("k_sync", "k_async", "k_batch_async", "k_batch_sync")
SIGNS = {"equality": "=", "upper bound": "≤"}  # of what the paper proves
Place = tuple[str, int]  # distribution, workers or K
Times = dict[Place, dict[str, Sample]]  # -> strategy -> seconds an update


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
    return str(published("adasync")["notes"]["shapes"]).format(shown=", ".join(shown.values()))


def largest(deviations: Mapping[str, float], what: str = "The simulated mean") -> str:
    """A note: where the mean lies furthest from the formula.

    Args:
        deviations: place -> per cent.
    """
    if not deviations:
        return f"{what} cannot be compared: no runs."
    where, value = max(deviations.items(), key=lambda pair: abs(pair[1]))
    return f"{what} is at most {abs(value):.2f} % from the formula ({where})."


# Figure 6: how many more updates asynchronous SGD applies, against Theorem 1.


def speedups(artefact: Artefact) -> dict[Place, Sample]:
    """E[T_sync] / E[T_async], seed by seed, where both were run."""
    return {
        place: by_strategy["bsp"] / by_strategy["asp"]
        for place, by_strategy in _by_workers(artefact).items()
        if {"bsp", "asp"} <= set(by_strategy)
    }


def _by_workers(artefact: Artefact) -> Times:
    return times_by(artefact, lambda run: run.num_workers)


def fig6_table(artefact: Artefact) -> Table:
    """What Figure 6 plots, with Theorem 1 beside it."""
    names, known = published("adasync")["names"], distributions(artefact)
    times, ratios = _by_workers(artefact), speedups(artefact)

    def theorem(place: Place) -> float:
        return run_times.sync_over_async(known[place[0]], place[1])

    deviations = {place: 100.0 * (ratio.mean / theorem(place) - 1.0) for place, ratio in ratios.items()}
    columns: list[Column[Place]] = [
        Column("a gradient takes", lambda place: str(names[place[0]])),
        Column("P", lambda place: place[1], 0),
        Column("ours: sync, s an update", lambda place: times[place].get("bsp"), 3),
        Column("ours: async, s an update", lambda place: times[place].get("asp"), 5),
        Column("ours: sync / async", ratios.get, 2),
        Column("Theorem 1: P E[X_{P:P}] / E[X]", theorem, 2),
        Column("ours against Theorem 1, %", deviations.get, 2),
    ]
    order = list(known)
    rows = sorted(times, key=lambda place: order.index(place[0]))
    lines = [
        shapes(artefact),
        "Theorem 1 holds for every distribution. Exponential (Corollary 1): P H_P, which grows like P log P.",
        largest({f"{names[place[0]]}, P = {place[1]}": deviations[place] for place in rows if place in deviations}),
    ]
    return Table.of_artefact(artefact, "AdaSync, Figure 6", rows, columns, lines)


def fig6(artefact: Artefact) -> Figure:
    """Points: simulated, with the deviation over seeds; lines: Theorem 1."""
    names, ratios, sizes = published("adasync")["names"], speedups(artefact), _by_workers(artefact)
    series = []
    for position, (name, of) in enumerate(distributions(artefact).items()):
        own = [num_workers for other, num_workers in sizes if other == name]
        grid = sorted({round(p) for p in np.geomspace(min(own), max(own), 60)})
        theorem = [run_times.sync_over_async(of, num_workers) for num_workers in grid]
        series.append(Series(f"{names[name]}, Theorem 1", grid, theorem, colour=position, style="-"))
        simulated = {num_workers: ratio for (other, num_workers), ratio in ratios.items() if other == name}
        series.append(points("", simulated, position))
    panel = Panel("workers P", "updates of async for one of sync", series, log_x=True, log_y=True)
    title = f"AdaSync, Figure 6: points simulated, {len(artefact.seeds)} seeds, mean ± deviation"
    return Figure(title, [panel])


# Figure 7 and the table of run times: the four variants.


@dataclass(frozen=True, slots=True)
class Case:
    """A variant with one K under one distribution: what the paper proves of it, and what was simulated."""

    variant: str
    distribution: str
    k: int
    formula: run_times.RunTime
    ours: Sample | None  # seconds an update

    @property
    def name(self) -> str:
        names = published("adasync")["names"]
        return f"{names[self.variant]}, K = {self.k}, {names[self.distribution]}"

    @property
    def proved(self) -> str | None:
        """What the paper proves of the time; None where it proves nothing."""
        sign = SIGNS.get(self.formula.claim)
        return None if sign is None else f"{sign} {self.formula.seconds:.4f}"

    @property
    def ratio(self) -> Sample | None:
        """Simulated time / what is proved of it."""
        return None if self.ours is None or self.proved is None else self.ours / self.formula.seconds

    @property
    def is_above_bound(self) -> bool:
        is_bound = self.formula.claim == "upper bound"
        return is_bound and self.ratio is not None and self.ratio.mean > 1.0 + 1e-9  # beyond rounding


def times_of(artefact: Artefact) -> Times:
    """(distribution, K) -> variant -> seconds an update."""
    return times_by(artefact, lambda run: int(run.config["strategy"]["k"]))


def cases(artefact: Artefact) -> list[Case]:
    """Each variant under each distribution and K."""
    known, num_workers, times = distributions(artefact), artefact.runs[0].num_workers, times_of(artefact)
    return [
        Case(variant, name, k, bound(variant, known[name], k, num_workers), by_variant.get(variant))
        for variant in published("adasync")["formulas"]
        for (name, k), by_variant in times.items()
    ]


def fig7(artefact: Artefact) -> Figure:
    """A panel a distribution. Points: simulated; solid lines: proved equal; dashed lines: proved upper bounds."""
    names, known = published("adasync")["names"], distributions(artefact)
    num_workers = artefact.runs[0].num_workers
    times = times_of(artefact)
    panels = []
    for name, of in known.items():
        series = []
        for position, variant in enumerate(VARIANTS):
            simulated = {k: by[variant] for (other, k), by in times.items() if other == name and variant in by}
            series.append(points(names[variant], simulated, position))
            for claim, style in (("equality", "-"), ("upper bound", "--")):
                formulas = {k: bound(variant, of, k, num_workers) for k in simulated}
                drawn = {k: formula.seconds for k, formula in formulas.items() if formula.claim == claim}
                if drawn:
                    series.append(Series("", list(drawn), list(drawn.values()), colour=position, style=style))
        panels.append(Panel("K", "virtual seconds an update", series, title=f"{names[name]}, P = {num_workers}"))
    title = (
        f"AdaSync, Figure 7: points simulated, {len(artefact.seeds)} seeds; lines the paper's equalities (solid) and "
        "upper bounds (dashed)"
    )
    return Figure(title, panels)


RUNTIMES: Sequence[Column[Case]] = (
    Column("variant", lambda case: case.name),
    Column("paper: formula", lambda case: str(published("adasync")["formulas"][case.variant])),
    Column("paper: s an update", lambda case: case.proved),
    Column("ours: s an update", lambda case: case.ours, 4),
    Column("ours / paper's", lambda case: case.ratio, 3),
)


def runtime_table(artefact: Artefact, title: str) -> Table:
    """Every variant's formula, and what was simulated."""
    rows = cases(artefact)
    deviations = {
        case.name: 100.0 * (case.ratio.mean - 1.0)
        for case in rows
        if case.ratio is not None and case.formula.claim == "equality"
    }
    lines = [
        published("adasync")["notes"]["run_times"].format(P=artefact.runs[0].num_workers),
        shapes(artefact),
        largest(deviations, "Where equality is proved, the simulated mean"),
        f"Above a proved bound: {'; '.join(case.name for case in rows if case.is_above_bound) or 'none'}.",
    ]
    return Table.of_artefact(artefact, title, rows, RUNTIMES, lines)


def over_batch(times: Mapping[str, Sample], variant: str) -> Sample | None:
    """E[T] of k_sync or k_async over that of its batch variant, seed by seed; None if one was not run."""
    return ratio(times.get(variant), times.get(variant.replace("k_", "k_batch_")))
