"""What was measured of a cluster, and how well its profile foresees runs that nothing was fitted to."""

from collections.abc import Sequence

import numpy as np

from reports.figures import Figure, Panel, Series
from reports.tables import Column, Table
from syncline.timing.calibration import Prediction, autocorrelation
from syncline.timing.distributions import Array

LAGS = 100  # of the autocorrelation, at most
WORKERS = 7  # whose gradients are drawn, at most


def figure(
    name: str, seconds: Sequence[Array], messages: tuple[Array, Array] | None, predictions: Sequence[Prediction]
) -> Figure:
    """Gradients of the first workers, their autocorrelation, and, where there are any, messages and predictions.

    Args:
        messages: seconds, measured and foreseen.
    """
    orders, memories = [], []
    for worker, column in enumerate(seconds[:WORKERS]):
        label, lags = f"worker {worker}", min(LAGS, len(column) // 2)
        orders.append(Series(label, range(len(column)), (1e3 * column).tolist(), colour=worker))
        memories.append(Series(label, range(lags + 1), autocorrelation(column, lags).tolist(), colour=worker))
    panels = [
        Panel("gradient", "ms a gradient", orders),
        Panel("gradients later", "autocorrelation of the seconds a gradient", memories),
    ]
    if messages is not None:
        series = [
            Series(label, (1e3 * np.sort(times)).tolist(), np.linspace(0.0, 1.0, len(times)).tolist(), colour=place)
            for place, (label, times) in enumerate(zip(("measured", "foreseen"), messages, strict=True))
        ]
        panels.append(Panel("ms a message", "share of messages that take less", series))
    if predictions:
        places = range(len(predictions))
        bars = [
            Series("measured", places, [1e3 * each.measured_s for each in predictions], "bars", 0),
            Series("foreseen", places, [1e3 * each.foreseen_s for each in predictions], "bars", 1),
        ]
        panels.append(Panel("", "ms an update", bars, categories=[each.strategy for each in predictions]))
    return Figure(f"What was measured of cluster={name}", panels, columns=2)


COLUMNS: Sequence[Column[Prediction]] = (
    Column("strategy", lambda each: each.strategy),
    Column("measured: ms an update", lambda each: 1e3 * each.measured_s, 2),
    Column("foreseen: ms an update", lambda each: 1e3 * each.foreseen_s, 2),
    Column("error, %", lambda each: 100 * each.error, 1),
    Column("error, %, gradients independent", lambda each: 100 * each.independent_error, 1),
)


def table(name: str, predictions: Sequence[Prediction]) -> Table:
    """A row a strategy."""
    errors = [abs(100 * each.error) for each in predictions]
    note = f"Median error {np.median(errors):.1f} %, largest {max(errors):.1f} %, n = {len(errors)} runs."
    return Table.of(f"Runs that nothing was fitted to, and what cluster={name} foresees", predictions, COLUMNS, [note])
