"""What times alone tell of strategies: how fast they make steps of which kind, and who cannot be ahead of whom."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from syncline.studies.study import Counts

CLEARLY = 0.05  # a smaller difference between two rates of updates drops nobody
ALIKE = 1e-9  # relative, between equal means


@dataclass(frozen=True, slots=True)
class Pace:
    """Times and staleness of a strategy, means over runs without learning."""

    seconds_per_update: float
    gradients_per_update: float
    wasted: float  # share of the gradients that were begun
    mean_staleness: float  # updates
    least_share: float  # of the worker whose gradients are used least, over the mean
    gradients: float  # of a run, computed to the end
    traces: tuple[tuple[float, int, int, int, float], ...]  # (time, updates, used, wasted, staleness) of each run

    @staticmethod
    def of(runs: Sequence[Counts]) -> "Pace":
        """Of runs that differ in their seed, each with an update or more."""
        return Pace(
            fmean(run.time_s / run.updates for run in runs),
            fmean(run.used / run.updates for run in runs),
            fmean(run.wasted / run.begun for run in runs),
            fmean(run.mean_staleness for run in runs),
            fmean(run.least_share for run in runs),
            fmean(run.computed for run in runs),
            tuple((run.time_s, run.updates, run.used, run.wasted, run.mean_staleness) for run in runs),
        )


def dropped(paces: Mapping[str, Pace], comparable: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(label, reason) of each strategy that cannot be ahead of another one.

    It is one whose runs are those of an earlier one, gradient by gradient, or whose updates are of as many gradients as
    the other's, no less stale, from the workers (whose data differ) no more evenly, and clearly slower.

    Args:
        paces: in the order of declaration.
        comparable: labels of those whose times do not follow from losses and that have one model, not replicas; others
            are never dropped, and drop nobody.
    """
    left = [label for label in paces if label in comparable]
    for label in tuple(left):
        own = paces[label]
        for other in left:
            if other == label:
                continue
            than = paces[other]
            if own.traces == than.traces and left.index(other) < left.index(label):
                reason = f"on this cluster it is {other}: the same updates at the same times"
            elif _is_behind(own, than):
                slower = 1.0 - than.seconds_per_update / own.seconds_per_update
                reason = (
                    f"updates of {other} are of as many gradients, no staler ({than.mean_staleness:.3g} and "
                    f"{own.mean_staleness:.3g}), as evenly from all workers, and come {100.0 * slower:.0f} % sooner"
                )
            else:
                continue
            yield label, reason
            left.remove(label)
            break


def _is_behind(own: Pace, than: Pace) -> bool:
    """Same size of a step, no fresher, no more even, clearly slower."""
    is_same_step = abs(own.gradients_per_update - than.gradients_per_update) <= ALIKE * than.gradients_per_update
    is_no_fresher = own.mean_staleness >= than.mean_staleness * (1.0 - ALIKE)
    is_no_more_even = own.least_share <= than.least_share * (1.0 + ALIKE)
    return (
        is_same_step
        and is_no_fresher
        and is_no_more_even
        and own.seconds_per_update > (1.0 + CLEARLY) * than.seconds_per_update
    )
