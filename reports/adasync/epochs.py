"""Figure 8: run time of an epoch against K, by both readings of what an epoch is."""

from collections.abc import Mapping

from reports.adasync.runtimes import seconds_an_update
from reports.exhibits import Exhibit
from reports.figures import Figure, Panel, Series, points
from reports.records import Artefact, Run, published
from reports.statistics import Sample, paired
from reports.tables import Column, Table, Value

Key = tuple[str, str, int]  # delay, variant, K


def an_epoch_used(run: Run) -> float:
    """Seconds in which updates use as many images as there are: 50,000 / (32 K) updates."""
    seconds: float = run.summary["time_s"] / run.summary["epochs"]
    return seconds


def an_epoch_dealt(run: Run) -> float:
    """Seconds of as many updates as it takes P workers to go through all images once: 50,000 / (32 P), whatever K."""
    config = run.config
    images = config["dataset"]["train_size"] or 50_000
    updates: float = images / (config["batch_size"] * config["cluster"]["workers"])
    return seconds_an_update(run) * updates


READINGS = {"used": an_epoch_used, "dealt": an_epoch_dealt}


def times(artefact: Artefact, reading: str) -> dict[Key, Sample]:
    """Seconds an epoch of every row."""
    found = {}
    for label, runs in artefact.rows().items():
        delay, variant, _ = label.split("/")
        found[delay, variant, runs[0].config["strategy"]["k"]] = artefact.sample(runs, READINGS[reading])
    return found


def saving(found: Mapping[Key, Sample], delay: str, variant: str, k: int) -> Sample:
    """How much less time than fully synchronous SGD it takes, of that time; KeyError if one was not run."""
    largest = max(other for _, _, other in found)
    return paired(
        lambda own, full: 1.0 - own / full, found[delay, variant, k].values, found[delay, variant, largest].values
    )


def fig8(artefact: Artefact) -> Figure:
    """A panel a variant and reading."""
    paper = published("adasync")
    panels = []
    for reading in READINGS:
        found = times(artefact, reading)
        for variant in ("k_sync", "k_async"):
            series = []
            for colour, delay in enumerate(dict.fromkeys(delay for delay, _, _ in found)):
                own = {k: sample for (at, of, k), sample in found.items() if (at, of) == (delay, variant)}
                drawn = points(paper["names"][delay], own, colour)
                series += [drawn, Series("", drawn.x, drawn.y, colour=colour)]
            title = f"{paper['names'][variant]}; {paper['epochs'][reading]}"
            panels.append(Panel("K", "virtual seconds an epoch", series, title, log_y=True))
    return Figure(
        "AdaSync, Figure 8: run time of an epoch, at the paper's size", panels, paper["notes"]["fig8"], columns=2
    )


def fig8_table(artefact: Artefact) -> Table:
    paper = published("adasync")
    used, dealt = times(artefact, "used"), times(artefact, "dealt")
    ks = {k for _, _, k in used}
    body: list[list[Value]] = []
    for delay, variant, k in used:
        where = f"{paper['names'][variant]}, K = {k}, {paper['names'][delay]}"
        key = (delay, variant, k)
        row: list[Value] = [where, used[key], dealt[key]]
        for found in (used, dealt):
            has_full = (delay, variant, max(ks)) in found
            row.append(_percent(saving(found, delay, variant, k)) if has_full else None)
        body.append(row)
    columns = [
        Column("setting"),
        Column("s an epoch of images used", 2),
        Column("s an epoch of images dealt out", 2),
        Column("less than K = 8, %, images used", 1),
        Column("less than K = 8, %, images dealt out", 1),
    ]
    notes = [*paper["notes"]["fig8"], *artefact.closing_notes]
    return Table(f"AdaSync, Figure 8, at scale {artefact.scale}", columns, body, notes)


def _percent(shares: Sample) -> Sample:
    return Sample(tuple(None if value is None else 100.0 * value for value in shares.values))


def show_fig8(artefact: Artefact) -> Exhibit:
    return {"": fig8(artefact), "table": fig8_table(artefact)}
