"""A figure as data, and its drawing: colour-blind safe, legible in print and on a screen."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from reports.statistics import Sample
from syncline.records.drawing import UNDATED

# Okabe and Ito's palette, black last; with more curves than colours the line style tells them apart as well.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", ":")
FEW_POWERS = 200.0  # the end of a logarithmic axis with plain numbers over its beginning, at most
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
PUBLISHED = "#000000"
FORMATS = ("svg", "png", "pdf")  # of a drawing; the pages show the first alone

RC: Any = {
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.fonttype": "none",
    "svg.hashsalt": "syncline",
    "pdf.fonttype": 42,
}
Points = tuple[Sequence[float], Sequence[float]]  # places, heights


@dataclass(frozen=True, slots=True)
class Series:
    """One curve, row of points or row of bars; all sequences are equally long.

    `low` and `high` are its spread: a band about a line, a whisker on a point or a bar. What is `published` (a value
    that the paper's text gives) is drawn in black, as stars or as a dotted line.
    """

    label: str  # "": not in the legend
    x: Sequence[float]
    y: Sequence[float]
    kind: Literal["line", "points", "bars"] = "line"
    colour: int = 0  # position in COLOURS, and, past their end, in STYLES; of points also in MARKERS
    style: str | None = None  # of a line: one of STYLES in place of its position's
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    published: bool = False

    @property
    def hex(self) -> str:
        return PUBLISHED if self.published else COLOURS[self.colour % len(COLOURS)]

    @property
    def dash(self) -> str:
        return ":" if self.published else self.style or STYLES[self.colour // len(COLOURS) % len(STYLES)]


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes. Labels name the unit; an axis of time says whether it is virtual or wall time."""

    x_label: str
    y_label: str
    series: Sequence[Series]
    title: str = ""
    log_x: bool = False
    log_y: bool = False
    categories: Sequence[str] = ()  # names of x = 0, 1, ...; bars of several series stand side by side
    y_range: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    title: str
    panels: Sequence[Panel]
    notes: Sequence[str] = field(default_factory=tuple)
    columns: int = 3  # panels side by side, at most

    def write(self, folder: Path, stem: str, formats: Sequence[str] = FORMATS) -> list[Path]:
        """`stem` in these formats, and .csv (the plotted values), in the folder; returns the files."""
        from matplotlib import rc_context

        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / f"{stem}.{suffix}" for suffix in formats]
        with rc_context(RC):
            figure = _drawn(self)
            for path in files:
                figure.savefig(path, metadata=UNDATED[path.suffix])
        values = folder / f"{stem}.csv"
        values.write_text(self.csv())
        return [*files, values]

    def csv(self) -> str:
        """A line a point."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["panel", "series", "published", "x", "y", "low", "high"])
        for number, panel in enumerate(self.panels):
            for series in panel.series:
                for i, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
                    spread = [None if side is None else side[i] for side in (series.low, series.high)]
                    name = panel.categories[round(x)] if panel.categories else x
                    writer.writerow([panel.title or number, series.label, int(series.published), name, y, *spread])
        return out.getvalue()


def curve(label: str, runs: Sequence[Points], colour: int = 0, style: str | None = None) -> Series:
    """The mean of several runs' curves, with a band from the lowest to the highest.

    Runs are brought to common places by interpolation, from where all have begun to where the first ends; one that
    diverged before it had a place is left out.
    """
    runs = [run for run in runs if run[0]]
    if not runs:
        return Series(label, [], [], colour=colour, style=style)
    begin, end = max(places[0] for places, _ in runs), min(places[-1] for places, _ in runs)
    grid = np.linspace(begin, end, 200)
    values = np.stack([np.interp(grid, places, heights) for places, heights in runs])
    series = Series(label, grid.tolist(), values.mean(axis=0).tolist(), colour=colour, style=style)
    if len(runs) == 1:
        return series
    return replace(series, low=values.min(axis=0).tolist(), high=values.max(axis=0).tolist())


def points(
    label: str, samples: Mapping[Any, Sample], colour: int = 0, kind: Literal["line", "points", "bars"] = "points"
) -> Series:
    """A mean at each place, with a whisker of one deviation up and down; places without a value are left out."""
    there = {x: sample for x, sample in samples.items() if sample.n}
    spread = {x: 0.0 if sample.n < 2 else sample.std for x, sample in there.items()}
    low = [sample.mean - spread[x] for x, sample in there.items()]
    high = [sample.mean + spread[x] for x, sample in there.items()]
    means = [sample.mean for sample in there.values()]
    return Series(label, list(there), means, kind, colour, low=low, high=high)


def _drawn(figure: Figure) -> Any:
    import matplotlib.figure

    columns = min(figure.columns, len(figure.panels))
    rows = -(-len(figure.panels) // columns)
    width = 6.8 if columns == 1 else 4.8 * columns
    made = matplotlib.figure.Figure(layout="constrained", figsize=(width, 4.0 * rows))
    axes = made.subplots(rows, columns, squeeze=False)
    for place in axes.flat[len(figure.panels) :]:
        place.set_visible(False)
    for place, panel in zip(axes.flat, figure.panels, strict=False):
        _draw_panel(place, panel)
    made.suptitle(figure.title, fontsize=11)
    engine = made.get_layout_engine()
    assert engine is not None
    engine.execute(made)
    made.set_layout_engine(None)  # it is laid out already: each format would do so again, and draw twice
    return made


def _draw_panel(axes: Any, panel: Panel) -> None:
    bars = [series for series in panel.series if series.kind == "bars"]
    draw: Mapping[str, Callable[..., None]] = {"line": _draw_line, "points": _draw_points, "bars": _draw_bars}
    for series in panel.series:
        draw[series.kind](axes, series, bars)
    if panel.log_x and _is_positive(series.x for series in panel.series):
        axes.set_xscale("log")
        _label_log(axes.xaxis)
    if panel.log_y and _is_positive(series.y for series in panel.series):
        axes.set_yscale("log")
        _label_log(axes.yaxis)
    if panel.y_range:
        axes.set_ylim(panel.y_range)
    if panel.categories:
        axes.set_xticks(range(len(panel.categories)), panel.categories)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.set_title(panel.title)
    shown = [series for series in panel.series if series.label]
    if shown:
        axes.legend(loc="best", ncols=2 if len(shown) > 5 else 1)


def _label_log(axis: Any) -> None:
    """Plain numbers at 1, 2 and 5 of each power of ten, where the axis has few of them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    if high <= FEW_POWERS * low:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def _is_positive(values: Iterable[Sequence[float]]) -> bool:
    """Whether a logarithmic axis has anything to show."""
    return any(value > 0.0 for of_series in values for value in of_series)


def _draw_line(axes: Any, series: Series, bars: Sequence[Series]) -> None:
    axes.plot(series.x, series.y, color=series.hex, linestyle=series.dash, label=series.label or None)
    if series.low is not None and series.high is not None:
        axes.fill_between(series.x, series.low, series.high, color=series.hex, alpha=0.15, linewidth=0)


def _whiskers(series: Series) -> Any:
    if series.low is None or series.high is None:
        return None
    heights = np.asarray(series.y, float)
    return np.stack([heights - np.asarray(series.low), np.asarray(series.high) - heights]).clip(min=0.0)


def _draw_points(axes: Any, series: Series, bars: Sequence[Series]) -> None:
    axes.errorbar(
        series.x,
        series.y,
        yerr=_whiskers(series),
        fmt="*" if series.published else MARKERS[series.colour % len(MARKERS)],
        color=series.hex,
        fillstyle="full" if series.published else "none",  # markers beneath stay visible
        markersize=9 if series.published else 6,
        capsize=3,
        linestyle="none",
        label=series.label or None,
    )


def _draw_bars(axes: Any, series: Series, bars: Sequence[Series]) -> None:
    width = 0.8 / len(bars)
    left = (next(i for i, other in enumerate(bars) if other is series) - (len(bars) - 1) / 2) * width
    axes.bar(
        np.asarray(series.x, float) + left,
        series.y,
        width,
        yerr=_whiskers(series),
        capsize=2,
        color="white" if series.published else series.hex,
        edgecolor=series.hex,
        hatch="//" if series.published else None,
        label=series.label or None,
    )
