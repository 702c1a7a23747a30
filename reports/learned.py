"""Whether runs learned: a claim about learning is judged only where each side is well above chance.

Skill is the part of the way from chance to perfection that a run's last evaluation has come. Chance is 1 / classes of
an accuracy, 0.5 of an area under the ROC curve, else the run's evaluation before training; perfect is 1 of a fraction,
0 of a loss. A row has learned if the mean skill over its seeds is at least LEARNED, and Student's one-sided 95 %
interval of it is above 0.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from syncline.metrics import is_lower_better
from syncline.statistics import mean_p

if TYPE_CHECKING:
    from reports.records import Run

LEARNED = 0.1
CLASSES = {"glyphs100": 100, "cifar100": 100} | dict.fromkeys(
    ("digits", "mnist", "mnist_digits", "glyphs10", "cifar10"), 10
)
ERROR = 0.05


def num_classes(dataset: Mapping[str, Any]) -> int | None:
    """Of a data set, from its options in a config; None: they do not tell."""
    return CLASSES.get(dataset["name"], dataset.get("num_classes"))


def chance(run: "Run") -> float:
    """What the run's metric is without learning."""
    metric, classes = run.summary["metric"], num_classes(run.config["dataset"])
    if metric == "accuracy" and classes is not None:
        return 1.0 / classes
    return 0.5 if metric == "auc" else float(run.metrics[0][metric])


def skill(run: "Run") -> float:
    """At most 1; 0: as chance; -1 of a run that diverged, so that it counts as not learned."""
    metric = run.summary["metric"]
    value, without = run.metrics[-1][metric], chance(run)
    if run.is_diverged or not math.isfinite(value):
        return -1.0
    perfect = 0.0 if is_lower_better(run.summary) else 1.0
    return float((value - without) / (perfect - without)) if perfect != without else 0.0


def unlearned(runs: Sequence["Run"]) -> str:
    """One line on runs of one row that have not learned; empty if they have, or are of times alone."""
    learning = [run for run in runs if run.metrics]
    if not learning:
        return ""
    skills = [run.skill for run in learning]
    mean = math.fsum(skills) / len(skills)
    if mean >= LEARNED and (len(skills) < 2 or mean_p(skills) <= ERROR):
        return ""
    metric = learning[0].summary["metric"]
    ends = math.fsum(run.metrics[-1][metric] for run in learning) / len(learning)
    expected = math.fsum(map(chance, learning)) / len(learning)
    return (
        f"at chance: {learning[0].label} ends at {metric} {ends:.3f}, chance {expected:.3f}: "
        f"{100.0 * mean:.0f} % of the way to perfect, {100.0 * LEARNED:.0f} % asked"
    )
