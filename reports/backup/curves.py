"""Figure 3: accuracy against training time, and what backups save."""

from collections.abc import Callable

from reports.backup import runs as of_runs
from reports.backup.learning import AVERAGED, CONVERGED
from reports.backup.runs import ASYNC, BACKUP, SYNC, Cells, accuracy, cells, name_of, sizes, to_level, to_own_level
from reports.exhibits import Exhibit
from reports.figures import Figure, Panel, curve
from reports.records import Artefact, Run, published
from reports.statistics import Sample, paired_difference, paired_ratio
from reports.tables import Column, Table, Value


def fig3(artefact: Artefact) -> Figure:
    """A panel a number of workers: accuracy against virtual time."""
    of = cells(artefact)
    at = of_runs.levels(of)
    panels = [
        Panel(
            "virtual time, s",
            "test accuracy, %",
            [
                curve(name_of(kind), [_percent(run) for run in of[kind, workers]], position)
                for position, kind in enumerate((ASYNC, SYNC, BACKUP))
                if (kind, workers) in of
            ],
            title=f"{workers} workers",
            y_range=(max(0.0, min(at.values()) - 10.0), 100.0) if at else None,
        )
        for workers in sizes(of, SYNC)
    ]
    return Figure(f"Backup workers, Figure 3, at scale {artefact.scale}, {len(artefact.seeds)} seeds", panels)


def _percent(run: Run) -> tuple[list[float], list[float]]:
    places, heights = run.curve("accuracy")
    return places, [100.0 * height for height in heights]


def fig3_table(artefact: Artefact) -> Table:
    """A row a strategy and number of workers: time to converge and accuracy against async's."""
    of = cells(artefact)
    at = of_runs.levels(of)
    known = published("backup")["backup50"]
    body: list[list[Value]] = []
    for workers in sizes(of, SYNC):
        for kind in (ASYNC, SYNC, BACKUP):
            if (kind, workers) not in of:
                continue
            is_published = (kind, workers) == (BACKUP, 50)
            time, own = (against_async(artefact, of, kind, workers, value) for value in _times(at))
            body.append(
                [
                    f"{name_of(kind)} {workers}",
                    artefact.sample(of[kind, workers], to_level(at, "time_s")),
                    known["time"] if is_published else None,
                    time,
                    own,
                    known["accuracy"] if is_published else None,
                    more_than_async(artefact, of, kind, workers),
                ]
            )
    columns = [
        Column("strategy, workers"),
        Column("virtual s to the level", 0, show_n=True),
        Column("paper: time / async's", 2),
        Column("ours: time / async's", 2, show_n=True),
        Column("ours: time / async's, own level", 2, show_n=True),
        Column("paper: accuracy less async's, points", 2),
        Column("ours: accuracy less async's, points", 2, show_n=True),
    ]
    notes = [AVERAGED, CONVERGED, of_runs.about_diverged(artefact), *artefact.closing_notes]
    return Table(f"Backup workers, Figure 3, at scale {artefact.scale}: values", columns, body, notes)


def _times(at: dict[int, float]) -> tuple[Callable[[Run], float | None], ...]:
    return to_level(at, "time_s"), to_own_level("time_s")


def against_async(
    artefact: Artefact, of: Cells, kind: str, workers: int, value: Callable[[Run], float | None]
) -> Sample:
    """A number over that of as many asynchronous workers; LookupError where there are no such runs."""
    sides = (artefact.sample(of[side, workers], value) for side in (kind, ASYNC))
    return paired_ratio(*(side.values for side in sides))


def more_than_async(artefact: Artefact, of: Cells, kind: str, workers: int) -> Sample:
    """Points of accuracy above as many asynchronous workers; LookupError where there are no such runs."""
    sides = (artefact.sample(of[side, workers], accuracy) for side in (kind, ASYNC))
    return paired_difference(*(side.values for side in sides))


def show_fig3(artefact: Artefact) -> Exhibit:
    return {"": fig3(artefact), "table": fig3_table(artefact)}
