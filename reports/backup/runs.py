"""The numbers that are taken from a run, the same for every strategy, and when a run counts as converged."""

import math
import re
from collections.abc import Callable, Mapping, Sequence

from reports.figures import Points
from reports.records import Artefact, Run, published
from reports.statistics import Sample, restricted

ASYNC, SYNC, BACKUP, BACKUP5, RESTART = "async", "sync", "backup", "backup5", "restart"
Cell = tuple[str, int]  # strategy, workers whose gradients an update takes
Cells = Mapping[Cell, list[Run]]  # -> its runs, one a seed


def cells(artefact: Artefact, prefix: str = "") -> Cells:
    """The runs labelled `<prefix><strategy><workers>` (`backup5_<workers>`); no readings, no times alone."""
    found = {}
    for label, runs in artefact.rows().items():
        parts = re.fullmatch(re.escape(prefix) + r"(async|sync|restart|backup|backup5(?=_))_?(\d+)", label)
        if parts:
            found[parts[1], int(parts[2])] = runs
    return found


def sizes(of: Cells, kind: str) -> list[int]:
    return [workers for other, workers in of if other == kind]


def name_of(kind: str) -> str:
    return str(published("backup")["names"][kind])


def accuracy(run: Run) -> float | None:
    """Per cent of the test set at the run's last evaluation; None if it diverged."""
    return None if run.is_diverged else 100.0 * float(run.summary["final"]["accuracy"])


def accuracies(run: Run, over: str = "time_s") -> Points:
    """(places, per cent of the test set), over `epoch` or `time_s`."""
    places, shares = run.curve("accuracy", over)
    return places, [100.0 * share for share in shares]


def about_diverged(artefact: Artefact) -> str:
    """A note on the runs that diverged."""
    lost = [f"{run.label} seed {run.seed}" for run in artefact.runs if run.is_diverged]
    return f"Diverged, and without an accuracy at the end: {', '.join(lost)}." if lost else "No run diverged."


# Convergence. The paper gives no criterion, and its Table 1 compares times at accuracies that differ. The level: 97.5 %
# of what 25 asynchronous workers end at, whatever the strategy. That is where Figure 3 begins (77.0 of 78.94), and
# below all that Table 1 has. Claims are judged by a level that is fixed beforehand (`targets`); where there is none,
# tables show the way to that of each seed. The own level: 97.5 % of what a run ends at itself.


def level_share() -> float:
    known = published("backup")
    return float(known["figure3_begins"] / known["table1"][25]["accuracy"])


def levels(artefact: Artefact) -> dict[int, float]:
    """Seed -> the level in per cent.

    Raises:
        LookupError: none is fixed, and there is no run with 25 asynchronous workers.
    """
    try:
        return dict.fromkeys(artefact.seeds, 100.0 * artefact.target())
    except LookupError:
        return {run.seed: level for run in cells(artefact)[ASYNC, 25] if (level := own_level(run)) is not None}


def own_level(run: Run) -> float | None:
    """`level_share` of the accuracy at which the run itself ends, per cent; None if it diverged."""
    end = accuracy(run)
    return None if end is None else level_share() * end


def about_levels(artefact: Artefact) -> str:
    """A note on what counts as converged."""
    try:
        level = f"{100.0 * artefact.target():.2f} %, which is fixed beforehand: 97.5 % of the accuracy at which 25 "
        whose = "asynchronous workers ended under other seeds"
    except LookupError:
        level, whose = "97.5 % of the accuracy at which 25 ", "asynchronous workers end under the same seed"
    return (
        f"Converged: the paper gives no criterion. Here, at the first crossing of {level}{whose}, on a line between "
        "evaluations (77.0 of 78.94 %, where Figure 3 begins). Own level: of 97.5 % of what the run itself ends at. "
        "(k/n): only k of n seeds got there."
    )


def crossing(places: Sequence[float], heights: Sequence[float], level: float, falling: bool = False) -> float | None:
    """Where a curve first reaches the level, linear between evaluations; None if never, or if it begins there."""
    sign = -1.0 if falling else 1.0
    before: tuple[float, float] | None = None
    for place, height in zip(places, heights, strict=True):
        if sign * height >= sign * level:
            if before is None:
                return None
            return before[0] + (place - before[0]) * (level - before[1]) / (height - before[1])
        if math.isfinite(height):
            before = (place, height)
    return None


def to_level(at: Mapping[int, float], over: str) -> Callable[[Run], float | None]:
    """A run -> where it reaches its seed's level: over `epoch` or `time_s`."""
    return lambda run: crossing(*accuracies(run, over), at[run.seed]) if run.seed in at else None


def to_own_level(over: str) -> Callable[[Run], float | None]:
    """A run -> where it reaches its own level."""
    return lambda run: None if (level := own_level(run)) is None else to_level({run.seed: level}, over)(run)


def step_s(run: Run) -> float:
    """Virtual seconds that a worker's step takes on average: of a synchronous one, from update to update."""
    own = run.num_workers if run.config["strategy"]["name"] == "asp" else 1
    return run.time_s * own / run.number("updates")


def times_to_level(artefact: Artefact, runs: Sequence[Run], others: Sequence[Run], over: str) -> tuple[Sample, Sample]:
    """Where the one and the other reach the fixed level, over `epoch` or `time_s`, as `restricted` takes them.

    Raises:
        LookupError: no level is fixed.
    """
    at, sides = dict.fromkeys(artefact.seeds, 100.0 * artefact.target()), {0: runs, 1: others}
    reached = {side: artefact.sample(own, to_level(at, over)) for side, own in sides.items()}
    ends = {side: artefact.sample(own, lambda run: run.curve("accuracy", over)[0][-1]) for side, own in sides.items()}
    return restricted(reached, ends).pair(0, 1)
