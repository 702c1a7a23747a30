"""Options of the tasks: what a network learns, and by which metrics it is judged (learning/task.py, metrics.py)."""

from dataclasses import dataclass, field
from math import inf

from syncline.checks import check
from syncline.metrics import LOWER_IS_BETTER, METRICS, RANGES

DIRECTIONS = ("higher", "lower")


@dataclass(frozen=True)
class TaskConfig:
    name: str = "auto"  # auto: the model's; of a model of the user's own the first of the data set

    def range_of(self, metric: str) -> tuple[float, float]:
        """Its least and its largest value."""
        return RANGES[metric]

    def is_lower_better(self, metric: str) -> bool:
        return metric in LOWER_IS_BETTER


@dataclass(frozen=True)
class OwnTaskConfig(TaskConfig):
    """Options of a task of the user's own."""

    metrics: dict[str, str] = field(default_factory=dict)  # metric -> one of DIRECTIONS; the first judges a run

    def __post_init__(self) -> None:
        directions = set(self.metrics.values())
        rule = "task.metrics must map each metric to higher or lower, whichever is better"
        check(bool(directions) and directions <= set(DIRECTIONS), rule, self.metrics)

    def range_of(self, metric: str) -> tuple[float, float]:
        return RANGES.get(metric, (-inf, inf))

    def is_lower_better(self, metric: str) -> bool:
        return self.metrics[metric] == "lower"


TASKS: dict[str, type[TaskConfig]] = dict.fromkeys(("auto", *METRICS), TaskConfig)
