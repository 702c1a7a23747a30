"""The runs that the paper's artefacts share, and the numbers that are taken from one of them.

A setting is c and b, with `_newest` where a worker's counter jumps. Times alone are at the paper's own size.
"""

from reports.figures import Points
from reports.measures import final
from reports.records import Run, published

DELAYED, IN_TIME, NEWEST = "delayed", "in_time", "_newest"
SETTINGS = ("sync", "push28", "push28_pull90", "push20_pull75")  # of the paper


def name_of(setting: str) -> str:
    """As the paper calls it; with the reading where it is not the default."""
    names: dict[str, str] = published("psp")["names"]
    own = setting.removesuffix(NEWEST)
    return names[own] + (", tag=newest" if own != setting else "")


def minutes(run: Run) -> float:
    """Virtual minutes of the whole run."""
    return run.time_s / 60.0


def final_error(run: Run) -> float | None:
    """Top-1 error at the end, in per cent; None of a run that diverged."""
    accuracy = final("accuracy")(run)
    return None if accuracy is None else 100.0 * (1.0 - accuracy)


def discarded(run: Run) -> float:
    """Per cent of the gradients that reached the first server and came too late for it."""
    used, late = run.number("gradients_used"), run.number("gradients_discarded")
    return 100.0 * late / (used + late)


def by_epoch(run: Run) -> Points:
    """Top-1 error, per cent, against epochs of a worker's own data: with c < P fewer samples are used than computed."""
    updates, accuracies = run.curve("accuracy", over="updates")
    sizes = [row["samples"] / row["epoch"] for row in run.metrics if row["epoch"] > 0]
    an_update = run.num_workers * run.config["batch_size"] / sizes[0] if sizes else 0.0
    return [an_update * count for count in updates], _errors(accuracies)


def by_minutes(run: Run) -> Points:
    """Top-1 error, per cent, against virtual minutes."""
    seconds, accuracies = run.curve("accuracy")
    return [at / 60.0 for at in seconds], _errors(accuracies)


def _errors(accuracies: list[float]) -> list[float]:
    return [100.0 * (1.0 - accuracy) for accuracy in accuracies]
