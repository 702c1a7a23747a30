"""Figure 3: accuracy against training time, and what backups save."""

from collections.abc import Callable

from reports.backup import runs as of_runs
from reports.backup.learning import AVERAGED, CONVERGED
from reports.backup.runs import ASYNC, BACKUP, SYNC, Cell, Cells, accuracy, cells, name_of, sizes
from reports.figures import Figure, Panel, curve
from reports.records import Artefact, Run, published
from reports.statistics import Sample
from reports.tables import Column, Table


def fig3(artefact: Artefact) -> Figure:
    """A panel a number of workers: accuracy against virtual time."""
    of = cells(artefact)
    at = of_runs.levels(of)
    heights = (max(0.0, min(at.values()) - 10.0), 100.0) if at else None
    panels = []
    for workers in sizes(of, SYNC):
        series = [
            curve(name_of(kind), [_percent(run) for run in of[kind, workers]], position)
            for position, kind in enumerate((ASYNC, SYNC, BACKUP))
            if (kind, workers) in of
        ]
        panels.append(Panel("virtual time, s", "test accuracy, %", series, f"{workers} workers", y_range=heights))
    return Figure(f"Backup workers, Figure 3, at scale {artefact.scale}, {len(artefact.seeds)} seeds", panels)


def _percent(run: Run) -> tuple[list[float], list[float]]:
    places, heights = run.curve("accuracy")
    return places, [100.0 * height for height in heights]


def fig3_table(artefact: Artefact) -> Table:
    """A row a strategy and number of workers: time to converge and accuracy against async's."""
    of, known = cells(artefact), published("backup")["backup50"]
    to_common, to_own = of_runs.to_level(of_runs.levels(of), "time_s"), of_runs.to_own_level("time_s")

    def theirs(cell: Cell, key: str) -> float | None:
        return known[key] if cell == (BACKUP, 50) else None

    def time_to_async(cell: Cell, value: Callable[[Run], float | None]) -> Sample:
        return artefact.sample(of[cell], value) / artefact.sample(of[ASYNC, cell[1]], value)

    columns: list[Column[Cell]] = [
        Column("strategy, workers", lambda cell: f"{name_of(cell[0])} {cell[1]}"),
        Column("virtual s to the level", lambda cell: artefact.sample(of[cell], to_common), 0, show_n=True),
        Column("paper: time / async's", lambda cell: theirs(cell, "time"), 2),
        Column("ours: time / async's", lambda cell: time_to_async(cell, to_common), 2, show_n=True),
        Column("ours: time / async's, own level", lambda cell: time_to_async(cell, to_own), 2, show_n=True),
        Column("paper: accuracy less async's, points", lambda cell: theirs(cell, "accuracy"), 2),
        Column("ours: accuracy less async's, points", lambda c: more_than_async(artefact, of, *c), 2, show_n=True),
    ]
    rows = [(kind, n) for n in sizes(of, SYNC) for kind in (ASYNC, SYNC, BACKUP) if (kind, n) in of]
    notes = [AVERAGED, CONVERGED, of_runs.about_diverged(artefact), *artefact.closing_notes]
    return Table.of(f"Backup workers, Figure 3, at scale {artefact.scale}: values", rows, columns, notes)


def more_than_async(artefact: Artefact, of: Cells, kind: str, workers: int) -> Sample:
    """Points of accuracy above as many asynchronous workers; LookupError where there are no such runs."""
    own, other = (artefact.sample(of[side, workers], accuracy) for side in (kind, ASYNC))
    return own - other
