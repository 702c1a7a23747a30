"""Races of one training on many clusters: who is first by how slow the slowest worker is, and by how many there are."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import yaml

from reports.exhibits import Exhibit
from reports.figures import Figure, Panel, Series
from reports.races import Standing, ahead, by_subject, value_of
from reports.tables import Heading, Table
from syncline.records.store import RecordError
from syncline.records.studies import WrittenStudy
from syncline.timing.distributions import distribution

DRAWS = 100_000  # quantiles of a distribution, of which its deviation is computed


def phases(studies: Sequence[WrittenStudy]) -> Exhibit:
    """Who is first by the noise of the gradients' times and by how slow the slowest worker is.

    Raises:
        RecordError: there are no such races.
    """
    return _exhibit(studies, "phases", "slowest worker, times slower", "one {:g} times slower", _slowest)


def workers(studies: Sequence[WrittenStudy]) -> Exhibit:
    """Who is first by the noise of the gradients' times and the number of workers.

    Raises:
        RecordError: there are no such races.
    """
    return _exhibit(studies, "workers", "number of workers", "{:g} workers", _number)


def _exhibit(
    studies: Sequence[WrittenStudy], what: str, across: str, heading: str, place: Callable[[Standing], float]
) -> Exhibit:
    """A table of those that are not behind, and a panel each noise: seconds to the target."""
    answers = [answer for _, answer in by_subject(studies)[what] if answer["standings"]]
    if not answers:
        raise RecordError(f"no races of one training differ in the {across} at this scale")
    grid: dict[float, dict[float, Mapping[str, Any]]] = {}  # noise -> place -> answer
    for answer in answers:
        grid.setdefault(_noise(answer["standings"][0]), {})[place(answer["standings"][0])] = answer
    noises, places = sorted(grid), sorted({at for row in grid.values() for at in row})
    rows = [[f"{noise:.2g}", *(_first(grid[noise].get(at)) for at in places)] for noise in noises]
    note = (
        "The soonest first, with its virtual seconds to the target, then those that are not behind it. "
        "Noise: the standard deviation of a gradient's seconds over their mean."
    )
    headings = [Heading("noise"), *(Heading(heading.format(at)) for at in places)]
    title = f"Who is first, by noise and {across}"
    strategies = sorted({each["label"].split()[0] for answer in answers for each in answer["standings"]})
    panels = [
        Panel(
            across,
            "virtual seconds to the target",
            [_series(strategy, colour, grid[noise], places) for colour, strategy in enumerate(strategies)],
            f"noise {noise:.2g}",
            log_y=True,
            categories=[f"{at:g}" for at in places],
        )
        for noise in noises
    ]
    notes = ["Means with intervals of 95 %, of a strategy's soonest entrant. A miss counts as the length of the race."]
    return {"": Table(title, headings, rows, [note]), "figure": Figure(title, panels, notes, columns=2)}


def _number(standing: Standing) -> float:
    return float(value_of(standing, "cluster.workers"))


def _slowest(standing: Standing) -> float:
    return float(max(_mapping(value_of(standing, "scenario.slow")).values()))


def _noise(standing: Standing) -> float:
    """Nan: the race has that of its cluster's file."""
    text = value_of(standing, "cluster.jitter")
    if text in ("", "null"):
        return 0.0 if text else float("nan")
    values = distribution("cluster.jitter", _mapping(text)).quantile((np.arange(DRAWS) + 0.5) / DRAWS)
    return float(values.std() / values.mean())


def _mapping(text: str) -> dict[Any, Any]:
    """Of an override, which has no space after a colon."""
    found: dict[Any, Any] = yaml.safe_load(text.replace(":", ": "))
    return found


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
