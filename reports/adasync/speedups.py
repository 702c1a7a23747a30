"""Figure 6: how many more updates asynchronous SGD applies, against Theorem 1."""

import numpy as np

from reports.adasync.runtimes import Times, distributions, largest, shapes, times_by
from reports.figures import Figure, Panel, Series, points
from reports.records import Artefact, published
from reports.statistics import Sample
from reports.tables import Column, Table
from syncline.timing import run_times

Place = tuple[str, int]  # distribution, workers


def speedups(artefact: Artefact) -> dict[Place, Sample]:
    """E[T_sync] / E[T_async], seed by seed, where both were run."""
    return {
        place: by_strategy["bsp"] / by_strategy["asp"]
        for place, by_strategy in _times(artefact).items()
        if {"bsp", "asp"} <= set(by_strategy)
    }


def _times(artefact: Artefact) -> Times:
    return times_by(artefact, lambda run: run.num_workers)


def fig6_table(artefact: Artefact) -> Table:
    """What Figure 6 plots, with Theorem 1 beside it."""
    names, known = published("adasync")["names"], distributions(artefact)
    times, ratios = _times(artefact), speedups(artefact)

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
    title = f"AdaSync, Figure 6, at scale {artefact.scale}"
    return Table.of(title, rows, columns, lines + artefact.closing_notes, 5)


def fig6(artefact: Artefact) -> Figure:
    """Points: simulated, with the deviation over seeds; lines: Theorem 1."""
    names, ratios, sizes = published("adasync")["names"], speedups(artefact), _times(artefact)
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
