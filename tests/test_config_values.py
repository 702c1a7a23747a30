"""Values that can mean nothing are refused before anything is built: names, targets, indices, sizes, bounds, memory."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from composing import composed
from hypothesis import given
from hypothesis import strategies as st

from syncline.assembly.problem import build_problem
from syncline.checks import LARGEST, SEEDS, SMALLEST, Checked, check_numbers, ranged
from syncline.config import ConfigError, RunConfig, compose
from syncline.config.run import TABLES
from syncline.metrics import LOWER_IS_BETTER, METRICS, RANGES

# Names.


@pytest.mark.parametrize("group", TABLES)
def test_a_part_cannot_have_the_name_of_another(group: str) -> None:
    """A record names its parts: the rule holds for every source of a config."""
    config, _ = composed()
    part = getattr(config, group)
    others = [name for name, kind in TABLES[group].items() if kind is not type(part)]
    for name in (*others, "", "nonsense"):
        with pytest.raises(ConfigError, match=f"^{group} must be what its name says, one of "):
            dataclasses.replace(config, **{group: dataclasses.replace(part, name=name)})


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^model must be what its name says, one of .*, got NoneType"):
        RunConfig(model=None, epochs=1.0)


# Targets, slow workers, times of gradients, numbers of samples.


def test_every_metric_has_a_range() -> None:
    assert set(RANGES) == {metric for metrics in METRICS.values() for metric in metrics}
    assert all(low < high for low, high in RANGES.values())
    assert {metric for metric, (_, most) in RANGES.items() if math.isinf(most)} == LOWER_IS_BETTER


@pytest.mark.parametrize(
    "words",
    [
        ["target.value=0"],
        ["target.value=1"],
        ["target.value=90", "target.metric=loss"],
        ["scenario.slow={3: 2}"],
        ["cluster.workers=2"],  # the profile's times are of four
        ["cluster.gradient_s=[1,2]"],
        ["cluster.gradient_s=[1,2,3,4]"],
        ["batch_size=1437"],
        ["cluster.workers=1437"],
        ["cluster.workers=2000", "gradients=false"],  # no samples are needed
        ["dataset=glyphs10", "dataset.train_size=20000"],  # which are drawn
        ["strategy=k_sync", "strategy.k=4"],
        ["strategy=k_async", "strategy.k=4"],
        ["strategy=k_batch_sync", "strategy.k=9"],  # mini-batches, not workers
        ["strategy=k_batch_async", "strategy.k=9"],
        ["strategy=adasync", "strategy.k=4"],
        ["strategy=adasync", "strategy.k=9", "strategy.variant=k_batch_sync", "strategy.k_cap=9"],
        ["strategy=psp", "strategy.c=4", "strategy.b=100", "cluster.shards=7"],
        ["strategy=psp", "strategy.c=1", "strategy.b=0.1", "cluster.shards=7"],
        *([f"strategy={name}", "cluster.shards=2"] for name in ("asp", "bsp", "ssp")),
        ["strategy=backup", "strategy.backups=3", "cluster.shards=3"],
        ["strategy=backup", "strategy.backups=0"],
        ["strategy=ds_sync", "strategy.group_size=2"],
        ["strategy=bsp", "strategy.topology=allreduce", "strategy.impl=naive"],
    ],
    ids=" ".join,
)
def test_the_last_that_makes_sense_is_accepted(words: list[str]) -> None:
    composed(*words)


def test_a_batch_larger_than_a_text_is_refused_when_the_text_is_read(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("abc " * 500)
    words = (
        "model=char_lstm",
        "dataset=text",
        "dataset.path=book.txt",
        f"dataset.root={tmp_path}",
        "dataset.length=100",
    )
    config, _ = compose([*words, "batch_size=1000"])
    with pytest.raises(
        ConfigError, match=r"^batch_size must be <= 17: dataset=text has 17 training samples, got 1000$"
    ):
        build_problem(config, torch.device("cpu"))


# Limits: the default of 30 epochs applies if none is set.


@pytest.mark.parametrize(
    ("words", "limits"),
    [
        ([], (30.0, None, None)),
        (["max_updates=7"], (None, 7, None)),
        (["max_time_s=7"], (None, None, 7.0)),
        (["max_updates=7", "epochs=30"], (30.0, 7, None)),
        (["epochs=null"], (30.0, None, None)),
    ],
    ids=str,
)
def test_the_default_of_the_epochs_applies_if_no_limit_is_set(words: list[str], limits: tuple[Any, ...]) -> None:
    config, _ = composed(*words)
    assert (config.epochs, config.max_updates, config.max_time_s) == limits


def test_a_config_from_any_source_has_a_limit() -> None:
    """Also one that is built without a command line, and what a record holds is what the run has."""
    assert RunConfig().epochs == 30.0
    assert RunConfig(max_time_s=2.0).epochs is None
    assert composed()[0].as_dict()["epochs"] == 30.0


# Bounds.


@dataclasses.dataclass(frozen=True)
class Part:
    rate: Any = 1.0


@dataclasses.dataclass(frozen=True)
class Whole(Checked):
    seed: float = ranged(0, SEEDS)
    part: Part = dataclasses.field(default_factory=Part)


@given(st.floats() | st.integers(), st.sampled_from(["plain", "list", "mapping", "part"]))
def test_a_number_is_within_the_bounds_at_any_place(number: float, place: str) -> None:
    values: dict[str, Any] = {"plain": number, "list": [1, [number]], "mapping": {1: {2: number}}, "part": Part(number)}
    fits = number == 0 or SMALLEST <= abs(number) <= LARGEST
    if fits:
        check_numbers(Whole(part=Part(values[place])))
    else:
        with pytest.raises(ConfigError, match=r"^here\.part\.rate(\.rate)? must be "):
            check_numbers(Whole(part=Part(values[place])), "here")


def test_a_field_may_have_a_largest_number_of_its_own() -> None:
    check_numbers(Whole(seed=LARGEST + 1))
    with pytest.raises(ConfigError, match=r"^seed must be >= 1e-30 where it is not 0, got 1e-31$"):
        check_numbers(Whole(seed=1e-31))


def test_texts_and_truths_are_no_numbers() -> None:
    check_numbers(Whole(seed=True, part=Part("inf")))
