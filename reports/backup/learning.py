"""Table 1, Figures 1 and 3: accuracy, epochs and time to converge, by strategy and workers."""

from collections.abc import Callable, Sequence

from reports.backup.runs import (
    ASYNC,
    BACKUP,
    SYNC,
    Cell,
    about_diverged,
    about_levels,
    accuracy,
    cells,
    name_of,
    sizes,
    target,
)
from reports.figures import Figure, Panel, Points, Series, curve, points
from reports.measures import PERCENT, Measure, in_summary
from reports.records import Artefact, Run, published
from reports.statistics import Sample, ratio
from reports.tables import Column, Measured, Table
from reports.targets import over_all_targets, ratios_over_targets

Row = tuple[str, str, str]  # strategy, workers, reading


# Table 1.


def hours(run: Run) -> float:
    """Hours of a training as long as conf/cluster/k40.yaml assumes for the paper, at this run's seconds a gradient."""
    assumed = published("backup")["assumed"]
    gradients: float = assumed["epochs"] * assumed["images"] / assumed["batch"]
    return run.time_s / run.number("gradients_used") * gradients / 3600.0


def table1(artefact: Artefact) -> Table:
    """A row a number of workers: the paper's accuracy, time and speed-up beside ours."""
    known = published("backup")["table1"]
    rows = {n: runs for (kind, n), runs in cells(artefact).items() if kind == ASYNC}
    timed = {int(n): artefact.sample(runs, hours) for n, runs in artefact.by("workers", timed=True).items()}
    ours = Measured(artefact, rows)

    def gained(measure: Measure) -> Callable[[int], Sample]:
        """How many times as fast as 25 workers."""
        return lambda n: artefact.sample(rows[25], measure) / artefact.sample(rows[n], measure)

    columns: list[Column[int]] = [
        Column("workers", str),
        Column("paper: accuracy, %", lambda n: known[n]["accuracy"], 2),
        ours.column("ours: accuracy, %", accuracy, 2, show_n=True),
        Column("paper: against 25, points", lambda n: known[n]["accuracy"] - known[25]["accuracy"], 2),
        Column(
            "ours: against 25, points", lambda n: difference_of(artefact, accuracy, rows[n], rows[25]), 2, show_n=True
        ),
        Column("paper: hours", lambda n: known[n]["hours"], 2),
        Column("ours: hours of 100 epochs, times alone", timed.get, 2),
        Column("paper: speed-up", lambda n: known[n]["speedup"], 2),
        Column("ours: speed-up, times alone", lambda n: ratio(timed.get(25), timed.get(n)), 2),
        Column("ours: speed-up to the level", gained(target(artefact, "time_s").time), 2, show_n=True),
        ours.column("ours: epochs to the level", target(artefact, "epoch").time, 2, show_n=True),
        ours.column("ours: mean staleness", in_summary("mean_staleness")),
    ]
    about = published("backup")["notes"]
    notes = [about["averaged"], about_levels(artefact), about["times"], about_diverged(artefact)]
    return Table.of_artefact(artefact, "Backup workers, Table 1", rows, columns, notes)


def difference_of(artefact: Artefact, measure: Measure, runs: Sequence[Run], others: Sequence[Run]) -> Sample:
    """A measure of the one less the other's, a value a seed."""
    return artefact.sample(runs, measure) - artefact.sample(others, measure)


# Figure 1.


def fig1_table(artefact: Artefact) -> Table:
    """A row a run, also of the readings of how gradients are aggregated."""
    rows = artefact.by("strategy", "workers", "reading", timed=False)
    ours = Measured(artefact, rows)

    def less_async(row: Row) -> Sample | None:
        """None for async itself, and where async was not run with as many workers."""
        kind, workers, _ = row
        partner = rows.get((ASYNC, workers, ""))
        return difference_of(artefact, accuracy, rows[row], partner) if kind == SYNC and partner else None

    columns: list[Column[Row]] = [
        Column("strategy, workers", _row_name),
        Column("rate", lambda row: f"{rows[row][0].config['optimizer']['lr']:g}"),
        ours.column("accuracy, %", accuracy, 2, show_n=True),
        Column("less async's, points", less_async, 2, show_n=True),
        ours.column("epochs to the level", target(artefact, "epoch").time, 2, show_n=True),
        ours.column("updates", in_summary("updates"), 0),
    ]
    low, high = published("backup")["sync_over_async"]
    notes = [
        f"Of sync the text gives no value: {low} to {high} points above async, fewer epochs, "
        f"{published('backup')['sync_loses']} points lost from 50 to 100 workers.",
        published("backup")["notes"]["averaged"],
        about_levels(artefact),
        published("backup")["notes"]["readings"],
        about_diverged(artefact),
    ]
    about = ": values and readings"
    return Table.of_artefact(artefact, "Backup workers, Figure 1", rows, columns, notes, subtitle=about)


def _row_name(row: Row) -> str:
    kind, workers, reading = row
    readings = {"": "", "mean": ", mean at the same rate", "mean_scaled": f", mean at {workers} times the rate"}
    return f"{name_of(kind)} {workers}{readings[reading]}"


def fig1(artefact: Artefact) -> Figure:
    """Left accuracy, right epochs to the level, by workers."""
    of = cells(artefact)

    def drawn(value: Measure) -> list[Series]:
        return [
            points(name_of(kind), {n: artefact.sample(of[kind, n], value) for n in sizes(of, kind)}, position, "line")
            for position, kind in enumerate((ASYNC, SYNC))
        ]

    known = published("backup")["table1"]
    theirs = Series("async, paper", list(known), [row["accuracy"] for row in known.values()], "points", published=True)
    panels = [
        Panel("workers", "test accuracy, %", [*drawn(accuracy), theirs], title="accuracy at the end"),
        Panel("workers", "epochs", drawn(target(artefact, "epoch").time), title="epochs to converge"),
    ]
    title = f"Backup workers, Figure 1, at scale {artefact.scale}, {len(artefact.seeds)} seeds: mean ± deviation"
    return Figure(title, panels, [about_levels(artefact)])


# Figure 3.


def fig3(artefact: Artefact) -> Figure:
    """A panel a number of workers: accuracy against virtual time."""
    of = cells(artefact)
    level = artefact.target()
    heights = None if level is None else (max(0.0, PERCENT * level - 10.0), 100.0)
    panels = []
    for workers in sizes(of, SYNC):
        series = [
            curve(name_of(kind), list(map(_percent, of[kind, workers])), position)
            for position, kind in enumerate((ASYNC, SYNC, BACKUP))
            if (kind, workers) in of
        ]
        panels.append(Panel("virtual time, s", "test accuracy, %", series, f"{workers} workers", y_range=heights))
    return Figure(f"Backup workers, Figure 3, at scale {artefact.scale}, {len(artefact.seeds)} seeds", panels)


def _percent(run: Run) -> Points:
    places, shares = run.curve("accuracy")
    return places, [PERCENT * share for share in shares]


def over_targets(artefact: Artefact) -> Figure:
    """Times over those of as many asynchronous workers to every level."""
    of = cells(artefact)
    panels = [
        ratios_over_targets(
            artefact,
            {name_of(kind): of[kind, n] for kind in (SYNC, BACKUP) if (kind, n) in of},
            of[ASYNC, n],
            target(artefact, "time_s"),
            "test accuracy, share",
            f"{n} workers",
        )
        for n in sizes(of, ASYNC)
        if (SYNC, n) in of or (BACKUP, n) in of
    ]
    return over_all_targets("Backup workers, Figure 3: time to a level over async's, by the level", panels, "async", 2)


def fig3_table(artefact: Artefact) -> Table:
    """A row a strategy and number of workers: time to converge and accuracy against async's."""
    of, known = cells(artefact), published("backup")["backup50"]
    rows = {(kind, n): of[kind, n] for n in sizes(of, SYNC) for kind in (ASYNC, SYNC, BACKUP) if (kind, n) in of}
    ours, seconds = Measured(artefact, rows), target(artefact, "time_s").time

    def theirs(key: str) -> Callable[[Cell], float | None]:
        return lambda cell: known[key] if cell == (BACKUP, 50) else None

    def to_async(measure: Measure) -> Callable[[Cell], Sample]:
        return lambda cell: artefact.sample(of[cell], measure) / artefact.sample(of[ASYNC, cell[1]], measure)

    def less_async(cell: Cell) -> Sample:
        return difference_of(artefact, accuracy, of[cell], of[ASYNC, cell[1]])

    columns: list[Column[Cell]] = [
        Column("strategy, workers", lambda cell: f"{name_of(cell[0])} {cell[1]}"),
        ours.column("virtual s to the level", seconds, 0, show_n=True),
        Column("paper: time / async's", theirs("time"), 2),
        Column("ours: time / async's", to_async(seconds), 2, show_n=True),
        Column("paper: accuracy less async's, points", theirs("accuracy"), 2),
        Column("ours: accuracy less async's, points", less_async, 2, show_n=True),
    ]
    notes = [published("backup")["notes"]["averaged"], about_levels(artefact), about_diverged(artefact)]
    return Table.of_artefact(artefact, "Backup workers, Figure 3", rows, columns, notes, subtitle=": values")
