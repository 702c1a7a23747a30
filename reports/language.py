"""A language model in two regions: its loss against time, for each way to train it."""

from reports.exhibits import Exhibit
from reports.figures import Figure, Panel, curve
from reports.measures import Target, final, in_summary
from reports.records import Artefact, Run
from reports.statistics import Sample
from reports.tables import Column, Measured, Table

LOSS = "loss"
HOUR_S = 3600.0
BASELINE = "bsp"


def show_language(artefact: Artefact) -> Exhibit:
    """The curves, and a row a method: its loss at the end, how long it took, and how long BSP takes to that loss."""
    rows = artefact.rows()
    series = [
        curve(label, [_curve(run) for run in runs], colour=colour) for colour, (label, runs) in enumerate(rows.items())
    ]
    title = f"A language model in two regions, at scale {artefact.scale}"
    panel = Panel("virtual time, hours", "loss, nats a symbol", series, log_x=True)
    measured = Measured(artefact, rows)

    def of_baseline(label: str) -> Sample:
        target = Target(artefact.sample(rows[label], final(LOSS)).mean, _curve, falling=True)
        return artefact.sample(rows[BASELINE], target.time)

    columns: list[Column[str]] = [
        Column("method", str),
        measured.column("loss at the end", final(LOSS), 3),
        measured.column("hours", lambda run: run.time_s / HOUR_S, 2),
        Column(f"{BASELINE}'s hours to that loss", of_baseline, 2, show_n=True),
        measured.column("mean staleness", in_summary("mean_staleness"), 2),
    ]
    note = "All methods have the same number of samples. That loss: the mean over the seeds."
    table = Table.of_artefact(artefact, "A language model in two regions", rows, columns, [note])
    return {"": table, "curves": Figure(title, [panel], columns=1)}


def _curve(run: Run) -> tuple[list[float], list[float]]:
    """(hours after the start, losses)."""
    places, heights = run.curve(LOSS)
    pairs = [(place / HOUR_S, height) for place, height in zip(places, heights, strict=True) if place > 0.0]
    return [place for place, _ in pairs], [height for _, height in pairs]
