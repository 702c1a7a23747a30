"""The runs that the paper's artefacts share, and the numbers that are taken from one of them.

A label is `<scenario>/<setting>`: `delayed` or `in_time`; c and b, and `_newest` where a worker's counter jumps. With
`/timing` it is the same at the paper's own size, its time alone.
"""

from reports.figures import Points
from reports.records import Artefact, Run, published
from reports.statistics import Sample

DELAYED, IN_TIME, TIMING, NEWEST = "delayed", "in_time", "/timing", "_newest"
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
    """Top-1 error at the end, in per cent; None if the run diverged."""
    return None if run.is_diverged else 100.0 * (1.0 - float(run.summary["final"]["accuracy"]))


def discarded(run: Run) -> float:
    """Per cent of the gradients that reached the first server and came too late for it."""
    used, late = run.number("gradients_used"), run.number("gradients_discarded")
    return 100.0 * late / (used + late)


def minutes_of(artefact: Artefact, label: str) -> Sample:
    """At the paper's own size; KeyError where there is no such run."""
    return artefact.sample(artefact.rows()[label + TIMING], minutes)


def errors_of(artefact: Artefact, label: str) -> Sample:
    """KeyError where there is no such run."""
    return artefact.sample(artefact.rows()[label], final_error)


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
