"""Figure 6: how many more updates asynchronous SGD makes, against Theorem 1."""

import numpy as np

from reports.adasync.runtimes import distributions, largest, shapes, times_by
from reports.exhibits import Exhibit
from reports.figures import Figure, Panel, Series, points
from reports.records import Artefact, published
from reports.statistics import Sample, paired_ratio
from reports.tables import Column, Table, Value
from syncline.timing import run_times

SIZE = ("cluster", "workers")


def speedups(artefact: Artefact) -> dict[tuple[str, int], Sample]:
    """(distribution, workers) -> E[T_sync] / E[T_async], seed by seed."""
    return {
        place: paired_ratio(by_strategy["bsp"].values, by_strategy["asp"].values)
        for place, by_strategy in times_by(artefact, SIZE).items()
        if {"bsp", "asp"} <= set(by_strategy)
    }


def fig6_table(artefact: Artefact) -> Table:
    """What Figure 6 plots, with Theorem 1 beside it."""
    names, known = published("adasync")["names"], distributions(artefact)
    body: list[list[Value]] = []
    ratios = speedups(artefact)
    order = list(known)
    for (name, num_workers), times in sorted(times_by(artefact, SIZE).items(), key=lambda row: order.index(row[0][0])):
        ratio = ratios.get((name, num_workers))
        theorem = run_times.sync_over_async(known[name], num_workers)
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
        shapes(artefact),
        "Theorem 1 holds for every distribution. Exponential (Corollary 1): P H_P, which grows like P log P.",
        largest([(f"{row[0]}, P = {row[1]}", row[6]) for row in body]),
    ]
    return Table(f"AdaSync, Figure 6, at scale {artefact.scale}", columns, body, lines + artefact.closing_notes, 5)


def fig6(artefact: Artefact) -> Figure:
    """Points: simulated, with the deviation over seeds; lines: Theorem 1."""
    names, ratios, sizes = published("adasync")["names"], speedups(artefact), times_by(artefact, SIZE)
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


def show_fig6(artefact: Artefact) -> Exhibit:
    return {"": fig6(artefact), "table": fig6_table(artefact)}
