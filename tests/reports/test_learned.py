"""Chance, and how far from it a run has come."""

from dataclasses import replace

import pytest
from written import RunInMemory, learned

from reports.learned import LEARNED, chance, num_classes, skill
from syncline.config.datasets import DATASETS
from syncline.shapes import ImageShape


@pytest.mark.parametrize(
    "name", [name for name, options in DATASETS.items() if "classification" in options.tasks and name != "arrays"]
)
def test_the_number_of_classes_is_that_of_the_config(name):
    options = DATASETS[name](name=name)
    assert isinstance(options.shape, ImageShape)
    assert num_classes({"name": name, "num_classes": 1000}) == options.shape.num_classes


def curve(metric: str, first: float, last: float) -> RunInMemory:
    rows = [{metric: first}, {metric: last}]
    return replace(learned("bsp", 0, 0.0), summary={"metric": metric, "status": "finished"}, metrics=rows)


@pytest.mark.parametrize(
    ("run", "without", "found"),
    [
        (learned("bsp", 0, 0.1), 0.1, 0.0),
        (learned("bsp", 0, 0.19), 0.1, LEARNED),
        (learned("bsp", 0, 1.0), 0.1, 1.0),
        (curve("auc", 0.6, 0.75), 0.5, 0.5),
        (curve("f1", 0.2, 0.6), 0.2, 0.5),
        (curve("bits_per_character", 8.0, 6.0), 8.0, 0.25),
        (curve("bound", 500.0, 600.0), 500.0, -0.2),
        (curve("bound", 500.0, float("nan")), 500.0, -1.0),
    ],
)
def test_skill_is_the_part_of_the_way_from_chance_to_perfect(run, without, found):
    assert (chance(run), skill(run)) == (without, pytest.approx(found))


def test_a_run_that_diverged_has_not_learned():
    run = learned("bsp", 0, 0.9)
    assert skill(replace(run, summary=run.summary | {"status": "diverged"})) == -1.0
