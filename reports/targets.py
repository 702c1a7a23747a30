"""Times to a target over a baseline's, as a curve over all targets: how far a comparison depends on the one chosen."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from reports.figures import COLOURS, Figure, Panel, Series
from reports.measures import Target
from reports.records import Artefact, Run

LEVELS = 60  # of the curve


def over_all_targets(what: str, panels: Sequence[Panel], baseline: str, columns: int = 1) -> Figure:
    """These panels of `ratios_over_targets` as a figure."""
    notes = [f"A curve ends where a seed of either side no longer arrives. Below 1: sooner than {baseline}."]
    return Figure(what, panels, notes, columns=columns)


def ratios_over_targets(
    artefact: Artefact,
    rows: Mapping[str, Sequence[Run]],
    baseline: Sequence[Run],
    target: Target,
    label: str,
    title: str = "",
) -> Panel:
    """A curve a row: its mean time to each level over the baseline's, where all seeds of both arrive.

    Args:
        rows: name -> its runs; one without a run is left out.
        target: whose curve is used, and whose level is marked.
        label: what the curve's heights are ("test accuracy").
    """
    curves = [target.curve(run)[1] for run in chain(baseline, *rows.values())]
    heights = [height for curve in curves for height in curve if np.isfinite(height)]
    levels = np.linspace(min(heights), max(heights), LEVELS).tolist() if heights else []
    series = []
    for position, (name, runs) in enumerate(rows.items()):
        places, ratios = [], []
        for level in levels:
            at = replace(target, level=level)
            own, other = (artefact.sample(side, at.time) for side in (runs, baseline))
            if own.n == other.n == len(artefact.seeds) and other.mean > 0.0:
                places.append(level)
                ratios.append(own.mean / other.mean)
        if places:
            series.append(Series(name, places, ratios, colour=position))
    if target.level is not None and series:
        tops, places = [ratio for one in series for ratio in one.y], [target.level] * 2
        series.append(Series("the claim's target", places, [min(tops), max(tops)], colour=len(COLOURS) - 1, style=":"))
    return Panel(f"target: {label}", "time / the baseline's", series, title)
