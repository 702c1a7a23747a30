"""The artefacts of the AdaSync paper (Dutta et al. 2021): Figures 6 and 7, run times against their formulas."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from reports.exhibits import Exhibit, Paper
from reports.figures import Figure, Panel, Series, points
from reports.records import Artefact, Run, published
from reports.statistics import Sample, paired_ratio
from reports.tables import Column, Table, Value
from syncline.timing import theory
from syncline.timing.distributions import Distribution, ShiftedExponential, distribution

VARIANTS = ("k_sync", "k_async", "k_batch_async", "k_batch_sync")


def seconds_an_update(run: Run) -> float:
    """E[T] of the run: virtual seconds of an update."""
    seconds: float = run.summary["time_s"]
    updates: int = run.summary["updates"]
    return seconds / updates


def run_time_of(config: Mapping[str, Any]) -> Distribution:
    """X: seconds of a gradient on the cluster `unit`."""
    return distribution("cluster.jitter", config["cluster"]["jitter"])


def bound(variant: str, of: Distribution, k: int, num_workers: int) -> theory.RunTime:
    """The paper's formula, the smaller of its two bounds where it has two."""
    formula = theory.run_time(variant, of, k, num_workers)
    if variant == "k_async" and formula.claim == "upper bound" and isinstance(of, ShiftedExponential):
        other = theory.k_async_shifted_bound_s(of, k, num_workers)
        return theory.RunTime(min(formula.seconds, other), formula.claim)
    return formula


# Figure 6.

Speedups = dict[tuple[str, int], Sample]  # (distribution, workers) -> E[T_sync] / E[T_async], one a seed


def fig6_times(artefact: Artefact) -> dict[tuple[str, int], dict[str, Sample]]:
    """(distribution, workers) -> strategy -> seconds an update."""
    times: dict[tuple[str, int], dict[str, Sample]] = {}
    for runs in artefact.rows().values():
        config = runs[0].config
        place = times.setdefault((config["cluster"]["jitter"]["name"], config["cluster"]["workers"]), {})
        place[config["strategy"]["name"]] = artefact.sample(runs, seconds_an_update)
    return times


def speedups(artefact: Artefact) -> Speedups:
    return {
        place: paired_ratio(by_strategy["bsp"].values, by_strategy["asp"].values)
        for place, by_strategy in fig6_times(artefact).items()
        if {"bsp", "asp"} <= set(by_strategy)
    }


def distributions(artefact: Artefact) -> dict[str, Distribution]:
    """Name -> X, in the order of the plan."""
    return {run.config["cluster"]["jitter"]["name"]: run_time_of(run.config) for run in artefact.runs}


def fig6_table(artefact: Artefact) -> Table:
    """What Figure 6 plots, with Theorem 1 beside it."""
    names, known = published("adasync")["names"], distributions(artefact)
    body: list[list[Value]] = []
    ratios = speedups(artefact)
    for (name, num_workers), times in fig6_times(artefact).items():
        ratio = ratios.get((name, num_workers))
        theorem = theory.sync_over_async(known[name], num_workers)
        body.append(
            [
                names[name],
                num_workers,
                times.get("bsp"),
                times.get("asp"),
                ratio,
                theorem,
                None if ratio is None else 100.0 * (ratio.mean / theorem - 1.0),
            ]
        )
    columns = [
        Column("a gradient takes"),
        Column("P", 0),
        Column("ours: sync, s an update", 3),
        Column("ours: async, s an update", 5),
        Column("ours: sync / async", 2),
        Column("Theorem 1: P E[X_{P:P}] / E[X]", 2),
        Column("ours against Theorem 1, %", 2),
    ]
    lines = [
        *_about(artefact),
        "Theorem 1 holds for every distribution. Exponential (Corollary 1): P H_P, which grows like P log P.",
        _largest([(f"{row[0]}, P = {row[1]}", row[6]) for row in body]),
    ]
    return Table(f"AdaSync, Figure 6, at scale {artefact.scale}", columns, body, lines + artefact.closing_notes, 5)


def fig6(artefact: Artefact) -> Figure:
    """Points: simulated, with the deviation over seeds; lines: Theorem 1."""
    names, ratios, sizes = published("adasync")["names"], speedups(artefact), fig6_times(artefact)
    series = []
    for position, (name, of) in enumerate(distributions(artefact).items()):
        own = [num_workers for other, num_workers in sizes if other == name]
        grid = sorted({round(p) for p in np.geomspace(min(own), max(own), 60)})
        theorem = [theory.sync_over_async(of, num_workers) for num_workers in grid]
        series.append(Series(f"{names[name]}, Theorem 1", grid, theorem, colour=position, style="-"))
        simulated = {num_workers: ratio for (other, num_workers), ratio in ratios.items() if other == name}
        series.append(points("", simulated, position))
    panel = Panel("workers P", "updates of async for one of sync", series, log_x=True, log_y=True)
    title = f"AdaSync, Figure 6: points simulated, {len(artefact.seeds)} seeds, mean ± deviation"
    return Figure(title, [panel])


# Figure 7.


def fig7_times(artefact: Artefact) -> dict[tuple[str, int], dict[str, Sample]]:
    """(distribution, K) -> variant -> seconds an update."""
    times: dict[tuple[str, int], dict[str, Sample]] = {}
    for runs in artefact.rows().values():
        config = runs[0].config
        place = times.setdefault((config["cluster"]["jitter"]["name"], config["strategy"]["k"]), {})
        place[config["strategy"]["name"]] = artefact.sample(runs, seconds_an_update)
    return times


def fig7_table(artefact: Artefact) -> Table:
    """What Figure 7 plots, each variant beside what the paper proves of it."""
    paper, known = published("adasync"), distributions(artefact)
    num_workers = artefact.runs[0].config["cluster"]["workers"]
    body: list[list[Value]] = []
    equalities: list[tuple[str, Value]] = []
    over: list[str] = []  # simulated means above a bound
    for (name, k), times in fig7_times(artefact).items():
        row: list[Value] = [f"{paper['names'][name]}, K = {k}"]
        for variant in VARIANTS:
            formula, ours = bound(variant, known[name], k, num_workers), times.get(variant)
            claimed: Value = {"equality": "= ", "upper bound": "≤ ", "unproved": ""}[formula.claim]
            claimed = f"{claimed}{formula.seconds:.3f}" if claimed else None
            row += [ours, claimed]
            if ours is None:
                continue
            where = f"{paper['names'][variant]}, {row[0]}"
            if formula.claim == "equality":
                equalities.append((where, 100.0 * (ours.mean / formula.seconds - 1.0)))
            elif formula.claim == "upper bound" and ours.mean > formula.seconds * (1.0 + 1e-9):  # but for rounding
                over.append(where)
        body.append(row)
    columns = [Column("a gradient takes")]
    for variant in VARIANTS:
        columns += [Column(f"{paper['names'][variant]}: ours, s", 3), Column(f"paper: {paper['formulas'][variant]}")]
    lines = [
        *_about(artefact),
        f"P = {num_workers}. What the paper proves of each variant: =, equality; ≤, an upper bound (of two the "
        "smaller); — nothing: Pareto times are not new-longer-than-used (Definition 3), which the bounds need.",
        _largest(equalities, "Where equality is proved, the simulated mean"),
        f"Above a proved bound: {', '.join(over) or 'none'}.",
    ]
    return Table(f"AdaSync, Figure 7, at scale {artefact.scale}", columns, body, lines + artefact.closing_notes, 5)


def fig7(artefact: Artefact) -> Figure:
    """A panel a distribution. Points: simulated; solid lines: proved equal; dashed lines: proved upper bounds."""
    names, known = published("adasync")["names"], distributions(artefact)
    num_workers = artefact.runs[0].config["cluster"]["workers"]
    times = fig7_times(artefact)
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


def show_fig6(artefact: Artefact) -> Exhibit:
    return {"": fig6(artefact), "table": fig6_table(artefact)}


def show_fig7(artefact: Artefact) -> Exhibit:
    return {"": fig7(artefact), "table": fig7_table(artefact)}


def _about(artefact: Artefact) -> list[str]:
    """Engine, distributions, seeds."""
    first, names = artefact.runs[0], published("adasync")["names"]
    shapes = {}
    for run in artefact.runs:
        jitter = run.config["cluster"]["jitter"]
        parameters = {key: value for key, value in jitter.items() if key != "name"}
        parameters.setdefault("mean", run_time_of(run.config).expectation())
        shown = ", ".join(f"{key} {value:g}" for key, value in parameters.items())
        shapes[jitter["name"]] = f"{names[jitter['name']]} ({shown})"
    return [
        f"Engine {first.summary['engine']}, {first.summary['time_kind']} time, times alone; messages take none. A "
        f"gradient's seconds, each drawn on its own: {', '.join(shapes.values())}. The paper's plot has no parameters.",
        f"Seeds {', '.join(map(str, artefact.seeds))}: mean ± sample standard deviation. {_length(artefact)}",
    ]


def _length(artefact: Artefact) -> str:
    config = artefact.runs[0].config
    if config["max_updates"] is not None:
        return f"A run is {config['max_updates']:,} updates."
    return f"A run is {config['epochs'] * config['dataset']['train_size'] / config['batch_size']:,.0f} gradients."


def _largest(deviations: list[tuple[str, Value]], what: str = "The simulated mean") -> str:
    """Where the mean lies furthest from the formula."""
    known = [(where, value) for where, value in deviations if isinstance(value, float)]
    if not known:
        return f"{what} is compared with nothing: no runs."
    where, value = max(known, key=lambda pair: abs(pair[1]))
    return f"{what} is at most {abs(value):.2f} % from the formula ({where})."


PAPER = Paper("adasync", {"fig6": show_fig6, "fig7": show_fig7}, ())
