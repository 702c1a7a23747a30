"""Which seeds are judged, and at which level: at one look at all seeds, or at each complete one of several, in order.

An experiment's file may declare looks: `looks: {laptop: [5, 10, 15, 20]}`, numbers of seeds by scale.
"""

from collections.abc import Sequence
from functools import cache

from reports.records import Artefact
from syncline.records.store import RecordError
from syncline.sequential import pocock_level

ALPHA = 0.05  # one-sided, in each direction


@cache
def level(sizes: tuple[int, ...], num_tests: int = 1) -> float:
    """Of p-values, so that so many tests at all these looks together err with ALPHA at most; sizes (): of one look."""
    return pocock_level(ALPHA / num_tests, sizes) if len(sizes) > 1 else ALPHA / num_tests


def declared(artefact: Artefact) -> tuple[int, ...]:
    """The numbers of seeds; () where there is one look at all.

    Raises:
        ValueError: they are no growing list of numbers.
    """
    sizes = (artefact.report.get("looks") or {}).get(artefact.scale) or ()
    if not all(isinstance(size, int) for size in sizes) or list(sizes) != sorted({*sizes}):
        raise ValueError(f"{artefact.name}: looks at scale {artefact.scale} must be growing numbers, got {sizes}")
    return tuple(sizes)


def num_planned(artefact: Artefact) -> int:
    """Looks whose seeds all its rows were planned with, at least 1."""
    return max(1, sum(size <= len(artefact.common_seeds) for size in declared(artefact)))


def at_looks(artefact: Artefact) -> list[Artefact]:
    """The artefact with the seeds of each complete look, the first look first.

    Raises:
        RecordError: runs are missing; with looks: of the seeds of the first one.
    """
    sizes = declared(artefact)
    if not sizes:
        if artefact.missing:
            raise RecordError(f"{len(artefact.missing)} runs are missing, {artefact.missing[0]} first")
        return [artefact]
    planned = sorted(set[int]().union(*artefact.planned().values()))
    complete = artefact.common_seeds - {missing.seed for missing in artefact.missing}
    num_complete = next((place for place, seed in enumerate(planned) if seed not in complete), len(planned))
    taken = [size for size in sizes if size <= num_complete]
    if not taken:
        first = f", {artefact.missing[0]} is missing first" if artefact.missing else ""
        raise RecordError(f"the first look takes {sizes[0]} seeds, {num_complete} are complete{first}")
    return [artefact.with_seeds(planned[:size]) for size in taken]


def at_common_looks(artefacts: Sequence[Artefact]) -> tuple[list[list[Artefact]], tuple[int, ...]]:
    """The artefacts of a claim at each look that is complete in all of them, and the sizes that set the level.

    One that declares no looks stands in each of them whole.

    Raises:
        RecordError: as `at_looks`.
    """
    found = [at_looks(artefact) for artefact in artefacts]
    sizes = [declared(artefact) for artefact in artefacts]
    several = [len(looks) for own, looks in zip(sizes, found, strict=True) if own]
    common = [[looks[min(number, len(looks) - 1)] for looks in found] for number in range(min(several, default=1))]
    return common, min(sizes, key=level)
