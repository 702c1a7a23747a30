"""Races of one training on many clusters: who is first by how slow the slowest worker is, and by how many there are."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import yaml

from reports.exhibits import Exhibit
from reports.figures import Figure, Panel, Series
from reports.races import Standing, ahead, by_subject, told_apart, value_of
from reports.tables import DASH, Heading, Table
from syncline.records.store import RecordError
from syncline.records.studies import WrittenStudy
from syncline.timing.distributions import distribution

DRAWS = 100_000  # quantiles of a distribution, of which its deviation is computed


def phases(studies: Sequence[WrittenStudy]) -> Exhibit:
    """Who is first by the noise of the gradients' times and by how slow the slowest worker is.

    Raises:
        RecordError: there are no such races.
    """
    across = "slowest worker, times slower"
    return _exhibit(studies, "phases", across, "one {:g} times slower", "scenario.slow", _slowest)


def workers(studies: Sequence[WrittenStudy]) -> Exhibit:
    """Who is first by the noise of the gradients' times and the number of workers.

    Raises:
        RecordError: there are no such races.
    """
    return _exhibit(studies, "workers", "number of workers", "{:g} workers", "cluster.workers", _number)


def _exhibit(
    studies: Sequence[WrittenStudy], what: str, across: str, heading: str, key: str, place: Callable[[Standing], float]
) -> Exhibit:
    """A table of those that are not behind, and a panel each noise: seconds to the target."""
    races = [(study, answer) for study, answer in by_subject(studies)[what] if answer["standings"]]
    if not races:
        raise RecordError(f"no races of one training differ in the {across} at this scale")
    grid: dict[tuple[str, float], dict[float, Mapping[str, Any]]] = {}  # (training, noise) -> place -> answer
    words = told_apart([study for study, _ in races], (key, "cluster.jitter"))
    for (study, answer), own in zip(races, words, strict=True):
        training = f"{' '.join([study.name, own]).strip()}: {answer['metric'].replace('_', ' ')} {answer['target']:g}"
        first = answer["standings"][0]
        grid.setdefault((training, _noise(first)), {})[place(first)] = answer
    places = sorted({at for row in grid.values() for at in row})
    is_one = len({training for training, _ in grid}) == 1
    labels = {
        (training, noise): ("" if is_one else f"{training}, noise ") + (DASH if math.isnan(noise) else f"{noise:.2g}")
        for training, noise in sorted(grid)
    }
    rows = [[label, *(_first(grid[row].get(at)) for at in places)] for row, label in labels.items()]
    note = (
        "The soonest first, with its virtual seconds to the target, then those that are not behind it. "
        "Noise: the standard deviation of a gradient's seconds over their mean"
        + (f"; {DASH}: that of the cluster's file." if any(math.isnan(noise) for _, noise in grid) else ".")
    )
    headings = [Heading("noise"), *(Heading(heading.format(at)) for at in places)]
    title = f"Who is first, by noise and {across}"
    strategies = sorted({each["label"].split()[0] for _, answer in races for each in answer["standings"]})
    panels = [
        Panel(
            across,
            "virtual seconds to the target",
            [_series(strategy, colour, grid[row], places) for colour, strategy in enumerate(strategies)],
            f"noise {label}" if is_one else label,
            log_y=True,
            categories=[f"{at:g}" for at in places],
        )
        for row, label in labels.items()
    ]
    notes = ["Means with intervals of 95 %, of a strategy's soonest entrant. A miss counts as the length of the race."]
    return {"": Table(title, headings, rows, [note]), "figure": Figure(title, panels, notes, columns=2)}


def _number(standing: Standing) -> float:
    return float(value_of(standing, "cluster.workers"))


def _slowest(standing: Standing) -> float:
    """1: the race slows no worker."""
    return float(max([1.0, *_mapping(value_of(standing, "scenario.slow")).values()]))


def _noise(standing: Standing) -> float:
    """Nan: the race has that of its cluster's file."""
    text = value_of(standing, "cluster.jitter")
    if text in ("", "null"):
        return 0.0 if text else math.nan
    values = distribution("cluster.jitter", _mapping(text)).quantile((np.arange(DRAWS) + 0.5) / DRAWS)
    return float(values.std() / values.mean())


def _mapping(text: str) -> dict[Any, Any]:
    """Of an override, which has no space after a colon; empty: it is not there, or null."""
    return yaml.safe_load(text.replace(":", ": ")) or {}


def _first(answer: Mapping[str, Any] | None) -> str | None:
    if answer is None:
        return None
    return f"{', '.join(ahead(answer))} ({answer['standings'][0]['seconds']:.3g} s)"


def _series(strategy: str, colour: int, row: Mapping[float, Mapping[str, Any]], places: Sequence[float]) -> Series:
    """The soonest of its entrants at each place where one was judged."""
    found = {}
    for number, at in enumerate(places):
        own = [each for each in row[at]["standings"] if each["label"].split()[0] == strategy] if at in row else []
        if own:
            found[float(number)] = min(own, key=lambda each: float(each["seconds"]))
    middle, low, high = ([each[key] for each in found.values()] for key in ("seconds", "lower", "upper"))
    return Series(strategy, [*found], middle, colour=colour, low=low, high=high)
