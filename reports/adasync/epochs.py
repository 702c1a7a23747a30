"""Figure 8: run time of an epoch against K, by both readings of what an epoch is."""

from collections.abc import Callable, Mapping

from reports.figures import Figure, Panel, Series, points
from reports.records import Artefact, Run, published
from reports.statistics import Sample
from reports.tables import Column, Table

Key = tuple[str, str, int]  # delay, variant, K


def an_epoch_used(run: Run) -> float:
    """Seconds in which updates use as many images as there are: 50,000 / (32 K) updates."""
    return run.time_s / run.number("epochs")


def an_epoch_dealt(run: Run) -> float:
    """Seconds of as many updates as it takes P workers to go through all images once: 50,000 / (32 P), whatever K."""
    config = run.config
    images = config["dataset"]["train_size"] or 50_000
    updates: float = images / (config["batch_size"] * run.num_workers)
    return run.seconds_an_update * updates


READINGS = {"used": an_epoch_used, "dealt": an_epoch_dealt}


def times(artefact: Artefact, reading: str) -> dict[Key, Sample]:
    """Seconds an epoch of every row."""
    found = {}
    for label, runs in artefact.rows().items():
        delay, variant, _ = label.split("/")
        found[delay, variant, runs[0].config["strategy"]["k"]] = artefact.sample(runs, READINGS[reading])
    return found


def saving(found: Mapping[Key, Sample], delay: str, variant: str, k: int) -> Sample:
    """The share of fully synchronous SGD's time that it saves; KeyError if one of the two was not run."""
    largest = max(other for _, _, other in found)
    return 1.0 - found[delay, variant, k] / found[delay, variant, largest]


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
    title = "AdaSync, Figure 8: run time of an epoch, at the paper's size"
    return Figure(title, panels, paper["notes"]["fig8"], columns=2)


def fig8_table(artefact: Artefact) -> Table:
    paper = published("adasync")
    used, dealt = times(artefact, "used"), times(artefact, "dealt")
    largest = max(k for _, _, k in used)

    def name(key: Key) -> str:
        delay, variant, k = key
        return f"{paper['names'][variant]}, K = {k}, {paper['names'][delay]}"

    def saved(found: Mapping[Key, Sample]) -> Callable[[Key], Sample | None]:
        """Per cent; None where the largest K was not run."""
        return lambda key: 100.0 * saving(found, *key) if (*key[:2], largest) in found else None

    columns: list[Column[Key]] = [
        Column("setting", name),
        Column("s an epoch of images used", used.get, 2),
        Column("s an epoch of images dealt out", dealt.get, 2),
        Column("less than K = 8, %, images used", saved(used)),
        Column("less than K = 8, %, images dealt out", saved(dealt)),
    ]
    return Table.of_artefact(artefact, "AdaSync, Figure 8", used, columns, paper["notes"]["fig8"])
