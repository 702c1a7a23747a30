"""Figure 2: the density of a pull's delay, from the event logs of runs of times alone."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from reports.exhibits import Exhibit
from reports.figures import STYLES, Figure, Panel, Series
from reports.records import Artefact, Run, published
from reports.statistics import Sample
from reports.tables import Column, Table
from syncline.records.sources import REFERENCE

SCENARIOS = {"delayed": "0.16 % of the responses 4 s late", "normal": "no delays injected"}
KINDS = {
    "response": "one response: from the server's sending to its arrival",
    "whole": "a whole pull: from the worker's request to the last block",
}
BIN_S = 0.05  # seconds; as wide as the network's own delays are


def show_fig2(artefact: Artefact) -> Exhibit:
    """Of the runs whose event log is there. RecordError if there is none."""
    logged = {label: [run for run in runs if run.record.has_events] for label, runs in artefact.rows().items()}
    if not any(logged.values()):
        artefact.runs[0].record.events()  # raises the error that says why
    delays = {label: {run.seed: _delays(run) for run in runs} for label, runs in logged.items() if runs}
    return {"": fig2(artefact, delays), "table": table(artefact, delays)}


def _notes(artefact: Artefact) -> list[str]:
    is_stored = any(run.record.origin == REFERENCE for run in artefact.runs)
    about = published("psp")["notes"]
    return [*about["fig2"], *([about["in_part"]] if is_stored else [])]


Delays = dict[str, dict[int, list[float]]]  # label -> seed -> seconds of each pull


def fig2(artefact: Artefact, delays: Delays) -> Figure:
    """A panel a reading of "delay", a line a scenario; the seeds are taken together."""
    panels = []
    for kind, title in KINDS.items():
        series = [
            density(name, list(chain(*delays[f"{scenario}/{kind}"].values())), colour)
            for colour, (scenario, name) in enumerate(SCENARIOS.items())
            if f"{scenario}/{kind}" in delays
        ]
        heights = [y for one in series for y in one.y if y]
        room, name = (min(heights, default=1.0) / 2, max(heights, default=1.0) * 2), title.replace(": ", ":\n")
        panels.append(Panel("delay, virtual s", "density, 1/s", series, name, log_y=True, y_range=room))
    title = f"PSP, Figure 2, at scale {artefact.scale}: how long a pull takes under Sync"
    return Figure(title, panels, [*_notes(artefact), *artefact.closing_notes])


def density(label: str, delays: Sequence[float], colour: int) -> Series:
    """A histogram of `BIN_S` as a line of steps; its area is 1."""
    counts = [*np.bincount((np.asarray(delays) / BIN_S).astype(int)), 0]
    x: list[float] = []
    y: list[float] = []
    for number, count in enumerate(counts):
        x += [number * BIN_S, (number + 1) * BIN_S]
        y += [float(count) / (len(delays) * BIN_S)] * 2
    return Series(label, x, y, colour=colour, style=STYLES[colour])  # where both are the same, both are seen


def table(artefact: Artefact, delays: Delays) -> Table:
    """The same in numbers."""
    late_s, share = published("psp")["late_s"], 100 * published("psp")["late_share"]
    names = {
        f"{scenario}/{kind}": f"{title.partition(':')[0]}, {name}"
        for kind, title in KINDS.items()
        for scenario, name in SCENARIOS.items()
    }

    def sample(label: str, value: Callable[[list[float]], Any]) -> Sample:
        by_seed = delays[label]
        return Sample(tuple(float(value(by_seed[seed])) if seed in by_seed else None for seed in artefact.seeds))

    def late(own: list[float]) -> float:
        return 100.0 * float(np.mean(np.asarray(own) >= late_s))

    columns = [
        Column("pull", names.__getitem__),
        Column("how many", lambda label: sum(map(len, delays[label].values())), 0),
        Column("mean, s", lambda label: sample(label, np.mean), 3),
        Column("median, s", lambda label: sample(label, np.median), 3),
        Column(f"ours: {late_s:g} s or longer, %", lambda label: sample(label, late), 3),
        Column("paper: late, %", lambda label: share if label == "delayed/response" else None, 2),
    ]
    labels = [label for label in names if label in delays]
    return Table.of_artefact(artefact, "PSP, Figure 2 in numbers", labels, columns, _notes(artefact))


def _delays(run: Run) -> list[float]:
    """Seconds of each pull but the first ones."""
    log = run.record.events().to_pandas()
    pulled = log[(log.kind == "pulled") & (log.value > 0)]
    if run.config["cluster"]["shards"] == 1:
        begun = log[log.kind == "granted"]
        number, wanted = begun.version, pulled.version
    else:
        begun = log[log.kind == "computed"]
        number, wanted = begun.groupby("worker").cumcount() + 1, pulled.value.astype(int)
    pulled, begun, keys = pulled.assign(number=wanted), begun.assign(number=number), ["worker", "number"]
    both = pulled.merge(begun, how="left", on=keys, suffixes=("", "_begun"), validate="many_to_one")
    assert not both["at_begun"].isna().any(), "a pull that was never begun"
    delays: list[float] = (both["at"] - both["at_begun"]).tolist()
    return delays
