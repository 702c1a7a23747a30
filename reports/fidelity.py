"""The result of `python -m benchmarks fidelity`: live runs, and the simulator's predictions of them."""

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reports.exhibits import Exhibit
from reports.figures import Figure, Panel, Series
from reports.tables import Column, Table
from syncline.records.store import RecordError

FILE = Path("fidelity") / "cells.json"
GOAL = 0.05  # of the median error
Cell = Mapping[str, Any]  # one strategy in one scenario


def fidelity(results: Path) -> Exhibit:
    """Foreseen against measured, a point a cell, and the numbers.

    Raises:
        RecordError: it was not measured here, or the file is broken.
    """
    path = results / FILE
    try:
        content = json.loads(path.read_text())
        return {"": figure(content["cells"]), "table": table(content)}
    except FileNotFoundError:
        raise RecordError(f"{path}: not measured here; python -m benchmarks fidelity does it") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(
            f"{path}: broken ({type(error).__name__}); python -m benchmarks fidelity makes it again"
        ) from None


def figure(cells: Sequence[Cell]) -> Figure:
    """Points, a colour a strategy, beside the line on which they should lie."""
    series = []
    for position, strategy in enumerate(dict.fromkeys(cell["strategy"] for cell in cells)):
        own = [cell for cell in cells if cell["strategy"] == strategy]
        places, heights = ([1e3 * cell[key] for cell in own] for key in ("measured_s", "foreseen_s"))
        series.append(Series(strategy, places, heights, "points", position))
    most = 1.1e3 * max(max(cell["measured_s"], cell["foreseen_s"]) for cell in cells)
    edge = [0.0, most]
    low, high = [0.0, most * (1 - GOAL)], [0.0, most * (1 + GOAL)]
    series.append(Series(f"equal, ± {GOAL:.0%}", edge, edge, colour=6, style="-", low=low, high=high))
    panel = Panel("measured, ms of wall time an update", "foreseen, ms of virtual time an update", series)
    return Figure("What the simulator foresees of live runs: a point a scenario", [panel])


def error_percent(cell: Cell) -> float:
    """Of the foreseen time."""
    return float(100.0 * (cell["foreseen_s"] / cell["measured_s"] - 1.0))


COLUMNS: Sequence[Column[Cell]] = (
    Column("strategy, scenario", lambda cell: f"{cell['strategy']}, {cell['scenario']}"),
    Column("measured: ms an update", lambda cell: 1e3 * cell["measured_s"], 2),
    Column("foreseen: ms an update", lambda cell: 1e3 * cell["foreseen_s"], 2),
    Column("error, %", error_percent, 2),
    Column("measured: largest lead", lambda cell: cell["measured_lead"], 0),
    Column("foreseen: largest lead", lambda cell: cell["foreseen_lead"], 0),
)


def table(content: Mapping[str, Any]) -> Table:
    """A row a strategy and scenario."""
    errors = [abs(error_percent(cell)) for cell in content["cells"]]
    notes = [
        f"Median error {statistics.median(errors):.2f} %, largest {max(errors):.2f} %, n = {len(errors)} cells.",
        f"Wall time of {content['workers']} real processes and a shard; {content['machine']}, commit "
        f"{content['commit']}. The measured times of gradients and messages are handed to the simulator as "
        "distributions; delays are drawn from the same streams.",
        "Made by: python -m benchmarks fidelity",
    ]
    return Table.of("Live runs, and what the simulator foresaw of them", content["cells"], COLUMNS, notes)
