"""How every figure looks: colour-blind safe, legible in print and on a screen, spread over seeds as bands."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt

from reports.statistics import Sample

# Okabe and Ito's palette, black last; with more curves than colours the line style tells them apart as well.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

RC: Any = {
    "figure.figsize": (6.4, 4.0),
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "syncline",
}

Points = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]


plt.rcParams.update(RC)


def new_figure() -> tuple[Any, Any]:
    """A figure with one pair of axes."""
    return plt.subplots(layout="constrained")


def new_panels(count: int) -> tuple[Any, list[Any]]:
    """A figure with so many pairs of axes side by side."""
    figure, axes = plt.subplots(1, count, squeeze=False, layout="constrained", figsize=(4.8 * count, 4.0))
    return figure, list(axes[0])


def draw_line(
    axes: Any, places: Sequence[float], heights: Sequence[float], position: int, label: str = "", style: str = "-"
) -> None:
    """A curve of a formula, in the colour of its position."""
    colour = COLOURS[position % len(COLOURS)]
    axes.plot(places, heights, color=colour, linestyle=style, linewidth=1.4, label=label or None)


def draw_points(axes: Any, points: Mapping[int, Sample], position: int, label: str = "") -> None:
    """What was measured: means over seeds, with a bar of one deviation up and down."""
    axes.errorbar(
        list(points),
        [sample.mean for sample in points.values()],
        yerr=[0.0 if sample.n < 2 else sample.std for sample in points.values()],
        fmt=MARKERS[position % len(MARKERS)],
        color=COLOURS[position % len(COLOURS)],
        fillstyle="none",  # what lies beneath shows
        markersize=6,
        capsize=3,
        linestyle="none",
        label=label or None,
    )


def draw_curve(axes: Any, runs: Sequence[Points], label: str, position: int) -> None:
    """The mean of several runs' curves over time, with a band from the lowest to the highest.

    Runs are brought to common times by interpolation, as far as the shortest of them reaches.
    """
    colour = COLOURS[position % len(COLOURS)]
    style = STYLES[position // len(COLOURS) % len(STYLES)]
    end = min(times[-1] for times, _ in runs)
    grid = np.linspace(0.0, end, 400)
    values = np.stack([np.interp(grid, times, heights) for times, heights in runs])
    axes.plot(grid, values.mean(axis=0), color=colour, linestyle=style, label=label)
    if len(runs) > 1:
        axes.fill_between(grid, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15, linewidth=0)


def save(figure: Any, folder: Path, stem: str) -> list[Path]:
    """`stem`.svg and .png in the folder; returns the files. Closes the figure."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{stem}.{suffix}" for suffix in ("svg", "png")]
    for path in files:
        # no date: the same records give the same file
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {"Software": None})
    plt.close(figure)
    return files
