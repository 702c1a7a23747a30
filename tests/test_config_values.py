"""Values that can mean nothing are refused before anything is built: names, targets, indices, sizes, bounds, memory."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
from composing import composed, line_of
from hypothesis import given
from hypothesis import strategies as st

from syncline import assembly
from syncline.config import GROUPS, ConfigError, RunConfig, compose
from syncline.config.checks import BOUNDS, LARGEST, SMALLEST, check_numbers
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
    ("words", "rule"),
    [
        # targets that the metric cannot have
        (["target.value=90"], "target.value must be in 0 .. 1 for target.metric=accuracy (0.9 for 90 %), got 90.0"),
        (["target.value=101"], "target.value must be in 0 .. 1 for target.metric=accuracy, got 101.0"),
        (["target.value=-0.1"], "target.value must be in 0 .. 1 for target.metric=accuracy, got -0.1"),
        (["target.value=-1", "target.metric=loss"], "target.value must be >= 0 for target.metric=loss, got -1.0"),
        (["target.value=nan"], "target.value must be a finite number, got nan"),
        (["target.value=inf", "target.metric=loss"], "target.value must be a finite number, got inf"),
        (
            ["target.value=0.5", "gradients=false"],
            "target.value must be null with gradients=false: nothing is learned, got 0.5",
        ),
        (
            ["model=char_lstm", "dataset=pydoc_text", "target.value=0.5", "target.metric=word_perplexity"],
            "target.value must be >= 1 for target.metric=word_perplexity, got 0.5",
        ),
        # values without effect or without data: stragglers, times of gradients, samples
        (["scenario.slow={9: 3}"], "scenario.slow must name workers in 0 .. 3, cluster.workers being 4, got [9]"),
        (
            ["scenario.slow_shards={7: 1}"],
            "scenario.slow_shards must name shards in 0 .. 0, cluster.shards being 1, got [7]",
        ),
        (
            ["cluster.gradient_s=[1,2,3,4,5,6]"],
            "cluster.gradient_s must have at most cluster.workers = 4 entries (fewer repeat), got 6",
        ),
        (["batch_size=1438"], "batch_size must be <= 1437: dataset=digits has 1,437 training samples, got 1438"),
        (
            ["batch_size=65", "dataset.train_size=64"],
            "batch_size must be <= 64: dataset=digits has 64 training samples, got 65",
        ),
        (
            ["batch_size=1438", "gradients=false"],
            "batch_size must be <= 1437: dataset=digits has 1,437 training samples, got 1438",
        ),
        (
            ["cluster.workers=1438"],
            "cluster.workers must be <= 1437: dataset=digits has 1,437 training samples, got 1438",
        ),
        (
            ["dataset=cifar10", "dataset.train_size=50001"],
            "dataset.train_size must be <= 50,000, all that cifar10 has, or null, got 50001",
        ),
        (
            ["model=char_lstm", "dataset=pydoc_text", "dataset.length=320001"],
            "dataset.length must be <= 320,000, or no sample is left, got 320001",
        ),
        (
            ["model=char_lstm", "dataset=text", "dataset.path=x", "gradients=false"],
            "dataset=text: only the data tell how many samples there are; dataset.train_size must be set, got null",
        ),
        *(
            (
                [f"model={model}", f"dataset={dataset}", option, "gradients=false"],
                f"dataset={dataset}: only the data tell how many samples there are; dataset.train_size must be set, "
                "got null",
            )
            for model, dataset, option in (
                ("char_lstm", "text8", "dataset.path=x"),
                ("deepfm", "criteo", "dataset.file=x"),
                ("resnet50", "imagenet", "dataset.num_classes=10"),
            )
        ),
    ],
    ids=" ".join,
)
def test_a_value_that_can_mean_nothing_is_refused(words: list[str], rule: str) -> None:
    assert line_of(*words) == rule


@pytest.mark.parametrize("words", [["target.value=0"], ["target.value=1"], ["target.value=90", "target.metric=loss"]])
def test_a_target_within_the_range_of_its_metric_is_accepted(words: list[str]) -> None:
    assert composed(*words)[0].target.value == float(words[0].partition("=")[2])


@pytest.mark.parametrize(
    "words",
    [
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
        assembly.build_learner(config, assembly.torch.device("cpu"))


# Limits: the default of 30 epochs applies if none is set.


@pytest.mark.parametrize(
    ("words", "limits"),
    [
        ([], (30.0, None, None)),
        (["max_updates=7"], (None, 7, None)),
        (["max_time_s=7"], (None, None, 7.0)),
        (["max_updates=7", "max_time_s=9"], (None, 7, 9.0)),
        (["max_updates=7", "epochs=30"], (30.0, 7, None)),
        (["epochs=2"], (2.0, None, None)),
        (["max_updates=null"], (30.0, None, None)),
    ],
    ids=str,
)
def test_the_default_of_the_epochs_applies_if_no_limit_is_set(words: list[str], limits: tuple[Any, ...]) -> None:
    config, _ = composed(*words)
    assert (config.epochs, config.max_updates, config.max_time_s) == limits


# Bounds.


@dataclasses.dataclass(frozen=True)
class Part:
    rate: Any = 1.0


@dataclasses.dataclass(frozen=True)
class Whole:
    seed: Any = 0
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


def test_a_key_may_have_bounds_of_its_own() -> None:
    check_numbers(Whole(seed=BOUNDS["seed"]))
    with pytest.raises(ConfigError, match=r"^seed must be <= 4,294,967,295, got 4294967296$"):
        check_numbers(Whole(seed=BOUNDS["seed"] + 1))


def test_texts_and_truths_are_no_numbers() -> None:
    check_numbers(Whole(seed=True, part=Part("inf")))


def test_every_bound_is_of_a_key() -> None:
    for key in BOUNDS:
        group, _, name = key.rpartition(".")
        kinds = GROUPS[group].values() if group else [RunConfig]
        assert any(name in {field.name for field in dataclasses.fields(kind)} for kind in kinds), key
