"""Which seeds are judged, and at which level: at one look at all seeds, or at the last complete one of several.

An experiment's file may declare looks: `looks: {laptop: [5, 10, 15, 20]}`, numbers of seeds by scale.
"""

from functools import cache

from reports.records import Artefact
from syncline.records.store import RecordError
from syncline.sequential import pocock_level

ALPHA = 0.05  # one-sided, in each direction


@cache
def level(sizes: tuple[int, ...]) -> float:
    """Of the p-values, so that all looks together err with ALPHA; the level of a single look is ALPHA."""
    return pocock_level(ALPHA, sizes) if len(sizes) > 1 else ALPHA


def declared(artefact: Artefact) -> tuple[int, ...]:
    """The numbers of seeds; () where there is one look at all.

    Raises:
        ValueError: they are no growing list of numbers.
    """
    sizes = (artefact.report.get("looks") or {}).get(artefact.scale) or ()
    if not all(isinstance(size, int) for size in sizes) or list(sizes) != sorted({*sizes}):
        raise ValueError(f"{artefact.name}: looks at scale {artefact.scale} must be growing numbers, got {sizes}")
    return tuple(sizes)


def at_last_look(artefact: Artefact) -> tuple[Artefact, float]:
    """The artefact with the seeds that are judged, and the level.

    Raises:
        RecordError: runs are missing; with looks: of the seeds of the first one.
    """
    sizes = declared(artefact)
    if not sizes:
        if artefact.missing:
            raise RecordError(f"{len(artefact.missing)} runs are missing, {artefact.missing[0]} first")
        return artefact, ALPHA
    open_seeds = {missing.seed for missing in artefact.missing}
    planned = sorted({*artefact.seeds, *open_seeds})
    num_complete = next((place for place, seed in enumerate(planned) if seed in open_seeds), len(planned))
    taken = [size for size in sizes if size <= num_complete]
    if not taken:
        first = f", {artefact.missing[0]} is missing first" if artefact.missing else ""
        raise RecordError(f"the first look takes {sizes[0]} seeds, {num_complete} are complete{first}")
    return artefact.with_seeds(planned[: taken[-1]]), level(sizes)
