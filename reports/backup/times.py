"""Figure 2: how long a step takes, under several forms of the long tail."""

from reports.backup.runs import ASYNC, BACKUP, BACKUP5, RESTART, SYNC, cells, name_of, sizes, step_s
from reports.figures import Figure, Panel, points
from reports.records import Artefact, published
from reports.statistics import Sample
from reports.tables import Column, Table

TAILS = {
    "slow1": "one worker is slower throughout",
    "slow2": "two workers are slower throughout",
    "pareto": "every gradient has a Pareto tail",
    "rare": "one gradient in a hundred is late",
}
LASTING = ("slow1", "slow2")  # as the text has it: "few workers that can be significantly slower or even dead"
KINDS = (ASYNC, SYNC, BACKUP, BACKUP5, RESTART)


def steps(artefact: Artefact, tail: str) -> dict[tuple[str, int], Sample]:
    """(strategy, workers whose gradients an update takes) -> virtual seconds a step."""
    return artefact.samples(step_s, cells(artefact, tail=tail))


def _present(artefact: Artefact) -> dict[str, str]:
    """The tails that were run."""
    there = artefact.by("tail")
    return {tail: words for tail, words in TAILS.items() if tail in there}


def fig2(artefact: Artefact) -> Figure:
    """A panel a tail, a group of bars a number of workers."""
    panels = []
    for tail, words in _present(artefact).items():
        of, taken = cells(artefact, tail=tail), steps(artefact, tail)
        workers = sizes(of, ASYNC)
        bars = []
        for position, kind in enumerate(KINDS):
            own = {place: taken[kind, number] for place, number in enumerate(workers) if (kind, number) in taken}
            if own:
                bars.append(points(name_of(kind), own, position, "bars"))
        categories = [f"{number} workers" for number in workers]
        highest = max(sample.mean for sample in taken.values())
        room = (0.0, 1.45 * highest)  # for the legend
        panels.append(Panel("", "virtual s a step", bars, title=words, categories=categories, y_range=room))
    title = f"Backup workers, Figure 2, {len(artefact.seeds)} seeds: mean ± deviation"
    return Figure(title, panels)


def fig2_table(artefact: Artefact) -> Table:
    """A row a tail, strategy and number of workers."""
    low, high = published("backup")["step_over_async"]
    theirs = {SYNC: f"{low} to {high}", BACKUP: "almost 1 up to 100 workers", ASYNC: "1"}
    taken = {tail: steps(artefact, tail) for tail in _present(artefact)}

    def over_async(row: tuple[str, str, int]) -> Sample:
        tail, kind, workers = row
        return taken[tail][kind, workers] / taken[tail][ASYNC, workers]

    columns: list[Column[tuple[str, str, int]]] = [
        Column("tail, strategy, workers", lambda row: f"{row[0]}, {name_of(row[1])} {row[2]}"),
        Column("virtual s a step", lambda row: taken[row[0]][row[1:]], 2),
        Column("paper: step / async's", lambda row: theirs.get(row[1])),
        Column("ours: step / async's", over_async, 3),
    ]
    rows = [(tail, *key) for tail, own in taken.items() for key in own]
    notes = published("backup")["notes"]["fig2"]
    return Table.of_artefact(artefact, "Backup workers, Figure 2", rows, columns, notes, subtitle=": values")
