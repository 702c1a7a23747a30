"""The answer of a race, of plain values."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Left:
    """An entrant that was not judged."""

    label: str
    stage: str
    reason: str


@dataclass(frozen=True, slots=True)
class Standing:
    """An entrant that was judged. Its mean seconds count a miss as the length of the race."""

    label: str
    overrides: tuple[str, ...]  # of its runs, without the seed
    rate: str
    num: int  # seeds
    num_reached: int  # of them reached the target
    seconds: float  # mean, with its interval
    lower: float
    upper: float
    ratio: float  # its time over the first one's, geometric mean over the seeds of both, with its interval
    ratio_lower: float
    ratio_upper: float
    first: float | None  # probability of being first among those that were left; None: found behind
    wasted: float  # share of its gradients that were thrown away
    staleness: float  # mean, in updates
    seconds_per_update: float
    remark: str  # what is doubtful; "": nothing
    times: tuple[float | None, ...]  # by seed; None: missed
    further: tuple[float, ...]  # mean seconds to each further target


@dataclass(frozen=True, slots=True)
class There:
    """Who would be first on another cluster."""

    name: str
    seconds: tuple[tuple[str, float], ...]  # (label, seconds), the soonest first


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A run of real processes beside the run with its seed in virtual time."""

    label: str
    overrides: tuple[str, ...]
    foreseen: float | None  # seconds to the target; None: missed
    measured: float | None
    update_time_ratio: float | None  # measured / foreseen; above 1 the machine does not keep the cluster's pace


@dataclass(frozen=True, slots=True)
class Raced:
    """The answer."""

    verdict: str  # first, equal, undecided, nobody
    sentence: str
    metric: str
    target: float
    targets: tuple[float, ...]  # further ones
    length_s: float
    num_seeds: int  # of the last look
    level: float  # of each test
    standings: tuple[Standing, ...]  # the first ones first
    left: tuple[Left, ...]
    around: tuple[There, ...]
    live: tuple[Confirmed, ...]
    spent_s: float  # as budgets count: wall seconds of the runs
