"""Values that can mean nothing are refused before anything is built: names, targets, indices, sizes, bounds, memory."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
from composing import assert_refused, composed
from hypothesis import given
from hypothesis import strategies as st

from syncline import assembly
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
    ("words", "allowed"),
    [
        # targets that the metric cannot have
        ("target.value=90", "in 0 .. 1 for target.metric=accuracy (0.9 for 90 %)"),
        ("target.value=101", "in 0 .. 1 for target.metric=accuracy"),
        ("target.value=-0.1", "in 0 .. 1 for target.metric=accuracy"),
        ("target.metric=loss target.value=-1", ">= 0 for target.metric=loss"),
        ("target.value=nan", "a finite number"),
        ("target.metric=loss target.value=inf", "a finite number"),
        ("gradients=false target.value=0.5", "null with gradients=false: nothing is learned"),
        ("model=char_lstm dataset=pydoc_text target.metric=word_perplexity target.value=0.5", ">= 1"),
        # values without effect or without data: stragglers, times of gradients, samples
        ("scenario.slow={9:3}", "workers in 0 .. 3, cluster.workers being 4"),
        ("scenario.slow_shards={7:1}", "shards in 0 .. 0, cluster.shards being 1"),
        ("cluster.gradient_s=[1,2,3,4,5,6]", "at most cluster.workers = 4 entries (fewer repeat)"),
        ("batch_size=1438", "<= 1437: dataset=digits has 1,437 training samples"),
        ("gradients=false batch_size=1438", "<= 1437: dataset=digits has 1,437 training samples"),
        ("dataset.train_size=64 batch_size=65", "<= 64: dataset=digits has 64 training samples"),
        ("cluster.workers=1438", "<= 1437: dataset=digits has 1,437 training samples"),
        ("dataset=cifar10 dataset.train_size=50001", "<= 50,000, all that cifar10 has, or null"),
        ("model=char_lstm dataset=pydoc_text dataset.length=320001", "<= 320,000, or no sample is left"),
    ],
)
def test_a_value_that_can_mean_nothing_is_refused(words: str, allowed: str) -> None:
    *_, last = words.split()
    assert_refused(words.split(), f"{last.partition('=')[0]} must ", allowed, ", got ")


@pytest.mark.parametrize(
    "words",
    [
        "model=char_lstm dataset=text dataset.path=x",
        "model=char_lstm dataset=text8 dataset.path=x",
        "model=deepfm dataset=criteo dataset.file=x",
        "model=resnet50 dataset=imagenet dataset.num_classes=10",
    ],
)
def test_times_alone_need_the_size_of_data_that_alone_know_it(words: str) -> None:
    model, dataset, option = words.split()
    assert_refused([model, dataset, option, "gradients=false"], dataset, "dataset.train_size must be set, got null")


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
        assembly.build_problem(config, assembly.torch.device("cpu"))


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
