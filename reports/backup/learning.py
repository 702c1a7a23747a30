"""Table 1, Figures 1 and 3: accuracy, epochs and time to converge, by strategy and workers."""

from collections.abc import Callable

from reports.backup import runs as of_runs
from reports.backup.runs import (
    ASYNC,
    BACKUP,
    SYNC,
    Cell,
    Cells,
    accuracy,
    cells,
    name_of,
    sizes,
    to_level,
    to_own_level,
)
from reports.figures import Figure, Panel, Series, curve, points
from reports.records import Artefact, Run, in_summary, published
from reports.statistics import Sample
from reports.tables import Column, Table

AVERAGED = "Accuracy is that of the averaged weights at the end of the run, in % of the test images."
ABOUT_TIMES = (
    "Times alone are at the paper's size. The seconds a gradient were derived from this table's worker-hours, taking "
    "100 epochs for any number of workers, and are the same in a larger cluster: so its hours are met on average and a "
    "doubling halves them by construction. What a level adds is how many epochs staleness costs. The paper's 8.06 for "
    "8 times as many workers is more than either can give."
)
ABOUT_READINGS = (
    "Readings: section 4 says that gradients are summed, at an unchanged rate; the published code takes the mean. "
    "RMSProp with eps = 1 divides by 1 or, as gradients grow, by more: the mean of 50 small gradients moves the "
    "weights a 50th of what their sum does, and at 50 times the rate nearly as far."
)


# Table 1.


def hours(run: Run) -> float:
    """Hours of a training as long as conf/cluster/k40.yaml assumes for the paper, at this run's seconds a gradient."""
    assumed = published("backup")["assumed"]
    gradients: float = assumed["epochs"] * assumed["images"] / assumed["batch"]
    return run.time_s / run.number("gradients_used") * gradients / 3600.0


def table1(artefact: Artefact) -> Table:
    """A row a number of workers: the paper's accuracy, time and speed-up beside ours."""
    of, rows, known = cells(artefact), artefact.rows(), published("backup")["table1"]
    at = of_runs.levels(artefact)

    def ours(workers: int, value: Callable[[Run], float | None]) -> Sample:
        return artefact.sample(of[ASYNC, workers], value)

    def alone(workers: int) -> Sample:
        return artefact.sample(rows.get(f"async{workers}/timing", []), hours)

    def speedup(workers: int, value: Callable[[Run], float | None]) -> Sample:
        return ours(25, value) / ours(workers, value)

    columns: list[Column[int]] = [
        Column("workers", str),
        Column("paper: accuracy, %", lambda n: known[n]["accuracy"], 2),
        Column("ours: accuracy, %", lambda n: ours(n, accuracy), 2, show_n=True),
        Column("paper: against 25, points", lambda n: known[n]["accuracy"] - known[25]["accuracy"], 2),
        Column("ours: against 25, points", lambda n: ours(n, accuracy) - ours(25, accuracy), 2, show_n=True),
        Column("paper: hours", lambda n: known[n]["hours"], 2),
        Column("ours: hours of 100 epochs, times alone", alone, 2),
        Column("paper: speed-up", lambda n: known[n]["speedup"], 2),
        Column("ours: speed-up, times alone", lambda n: alone(25) / alone(n), 2),
        Column("ours: speed-up to the level", lambda n: speedup(n, to_level(at, "time_s")), 2, show_n=True),
        Column("ours: speed-up to the own level", lambda n: speedup(n, to_own_level("time_s")), 2, show_n=True),
        Column("ours: epochs to the level", lambda n: ours(n, to_level(at, "epoch")), 2, show_n=True),
        Column("ours: mean staleness", lambda n: ours(n, in_summary("mean_staleness"))),
    ]
    notes = [AVERAGED, of_runs.about_levels(artefact), ABOUT_TIMES, of_runs.about_diverged(artefact)]
    return Table.of_artefact(artefact, "Backup workers, Table 1", sizes(of, ASYNC), columns, notes, 5)


# Figure 1.


def fig1_table(artefact: Artefact) -> Table:
    """A row a run, also of the readings of how gradients are aggregated."""
    of = cells(artefact)
    at = of_runs.levels(artefact)
    rows = {label: runs for label, runs in artefact.rows().items() if not label.endswith("/timing")}

    def less_async(label: str) -> Sample | None:
        """None for async itself, and where async was not run with as many workers."""
        partner = of.get((ASYNC, rows[label][0].num_workers))
        if not label.startswith(SYNC) or not partner:
            return None
        return artefact.sample(rows[label], accuracy) - artefact.sample(partner, accuracy)

    def ours(value: Callable[[Run], float | None]) -> Callable[[str], Sample]:
        return lambda label: artefact.sample(rows[label], value)

    columns: list[Column[str]] = [
        Column("strategy, workers", lambda label: _row_name(label, rows[label][0].num_workers)),
        Column("rate", lambda label: f"{rows[label][0].config['optimizer']['lr']:g}"),
        Column("accuracy, %", ours(accuracy), 2, show_n=True),
        Column("less async's, points", less_async, 2, show_n=True),
        Column("epochs to the level", ours(to_level(at, "epoch")), 2, show_n=True),
        Column("epochs to the own level", ours(to_own_level("epoch")), 2, show_n=True),
        Column("updates", ours(in_summary("updates")), 0),
    ]
    low, high = published("backup")["sync_over_async"]
    notes = [
        f"Of sync the text gives no value: {low} to {high} points above async, fewer epochs, "
        f"{published('backup')['sync_loses']} points lost from 50 to 100 workers.",
        AVERAGED,
        of_runs.about_levels(artefact),
        ABOUT_READINGS,
        of_runs.about_diverged(artefact),
    ]
    about = ": values and readings"
    return Table.of_artefact(artefact, "Backup workers, Figure 1", rows, columns, notes, subtitle=about)


def _row_name(label: str, workers: int) -> str:
    reading = {"_mean": ", mean at the same rate", "_mean_scaled": f", mean at {workers} times the rate"}
    own = next((words for end, words in reading.items() if label.endswith(end)), "")
    kind = label.split("_")[0].rstrip("0123456789")
    return f"{name_of(kind)} {workers}{own}"


def fig1(artefact: Artefact) -> Figure:
    """Left accuracy, right epochs to the level, by workers."""
    of = cells(artefact)
    at = of_runs.levels(artefact)

    def drawn(value: Callable[[Run], float | None]) -> list[Series]:
        return [
            points(name_of(kind), {n: artefact.sample(of[kind, n], value) for n in sizes(of, kind)}, position, "line")
            for position, kind in enumerate((ASYNC, SYNC))
        ]

    known = published("backup")["table1"]
    theirs = Series("async, paper", list(known), [row["accuracy"] for row in known.values()], "points", published=True)
    panels = [
        Panel("workers", "test accuracy, %", [*drawn(accuracy), theirs], title="accuracy at the end"),
        Panel("workers", "epochs", drawn(to_level(at, "epoch")), title="epochs to converge"),
    ]
    title = f"Backup workers, Figure 1, at scale {artefact.scale}, {len(artefact.seeds)} seeds: mean ± deviation"
    return Figure(title, panels, [of_runs.about_levels(artefact)])


# Figure 3.


def fig3(artefact: Artefact) -> Figure:
    """A panel a number of workers: accuracy against virtual time."""
    of = cells(artefact)
    at = of_runs.levels(artefact)
    heights = (max(0.0, min(at.values()) - 10.0), 100.0) if at else None
    panels = []
    for workers in sizes(of, SYNC):
        series = [
            curve(name_of(kind), [of_runs.accuracies(run) for run in of[kind, workers]], position)
            for position, kind in enumerate((ASYNC, SYNC, BACKUP))
            if (kind, workers) in of
        ]
        panels.append(Panel("virtual time, s", "test accuracy, %", series, f"{workers} workers", y_range=heights))
    return Figure(f"Backup workers, Figure 3, at scale {artefact.scale}, {len(artefact.seeds)} seeds", panels)


def fig3_table(artefact: Artefact) -> Table:
    """A row a strategy and number of workers: time to converge and accuracy against async's."""
    of, known = cells(artefact), published("backup")["backup50"]
    to_common, to_own = to_level(of_runs.levels(artefact), "time_s"), to_own_level("time_s")

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
    notes = [AVERAGED, of_runs.about_levels(artefact), of_runs.about_diverged(artefact)]
    return Table.of_artefact(artefact, "Backup workers, Figure 3", rows, columns, notes, subtitle=": values")


def more_than_async(artefact: Artefact, of: Cells, kind: str, workers: int) -> Sample:
    """Points of accuracy above as many asynchronous workers; LookupError where there are no such runs."""
    own, other = (artefact.sample(of[side, workers], accuracy) for side in (kind, ASYNC))
    return own - other
