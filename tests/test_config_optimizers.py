"""Schemas of the optimizers: ranges, and that each reaches the code it stands for."""

import inspect
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from syncline.config.optimizers import OPTIMIZERS, RMSPROP_FORMS, ScheduleConfig
from syncline.learning import optimizer, rmsprop, schedule

CHOICES = sorted((Path(__file__).parents[1] / "conf" / "optimizer").glob("*.yaml"))


def read(name: str, **overrides: float | str) -> Any:
    plain = yaml.safe_load(next(path for path in CHOICES if path.stem == name).read_text())
    kind = OPTIMIZERS[plain.pop("defaults")[0].removesuffix("_schema")]
    return kind(**plain | {"schedule": ScheduleConfig(**plain["schedule"])} | overrides)


def options_of(config: Any) -> dict[str, Any]:
    """What the optimizer itself is built from."""
    return {key: value for key, value in asdict(config).items() if key not in ("lr", "clip_norm", "schedule")}


@pytest.mark.parametrize("path", CHOICES, ids=lambda path: path.stem)
def test_a_choice_is_of_its_schema_and_can_be_built(path: Path) -> None:
    config = read(path.stem)
    assert type(config) is OPTIMIZERS[config.name]
    built = optimizer.build(**options_of(config))
    assert isinstance(built, optimizer.Averaged) is (config.average_decay is not None)
    made = schedule.build_schedule(config.lr, **asdict(config.schedule))
    assert made.rate(0.0) == config.lr


def test_the_tables_agree_with_the_code() -> None:
    assert set(OPTIMIZERS) == set(optimizer.OPTIMIZERS) == {read(path.stem).name for path in CHOICES}
    assert RMSPROP_FORMS == rmsprop.RMSPROP_FORMS
    taken = inspect.signature(schedule.build_schedule).parameters
    assert {"base", *asdict(ScheduleConfig())} == set(taken)


def test_the_values_of_inception_arrive() -> None:
    """0.045, times 0.94 every two epochs."""
    config = read("rmsprop")
    rates = [schedule.build_schedule(config.lr, **asdict(config.schedule)).rate(epoch) for epoch in (0, 1.99, 2, 4.5)]
    assert rates == pytest.approx([0.045, 0.045, 0.0423, 0.039762])
    built = optimizer.build(**options_of(config))
    assert isinstance(built, optimizer.Averaged)
    assert isinstance(built.optimizer, rmsprop.RmsProp)
    assert (built.optimizer.form, built.optimizer.eps) == ("tensorflow", 1.0)


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("sgd", {"lr": 0}, "optimizer.lr must be > 0, got 0"),
        ("sgd", {"lr": float("nan")}, "optimizer.lr must be > 0, got nan"),
        ("adam", {"weight_decay": -1}, "optimizer.weight_decay must be >= 0, got -1"),
        ("sgd", {"momentum": 1}, "optimizer.momentum must be in [0, 1), got 1"),
        ("nesterov", {"momentum": 0}, "optimizer.nesterov needs optimizer.momentum > 0, got 0"),
        ("sgd", {"clip_norm": 0}, "optimizer.clip_norm must be > 0 or null, got 0"),
        ("adam", {"average_decay": 1}, "optimizer.average_decay must be in (0, 1) or null, got 1"),
        ("rmsprop", {"alpha": 1}, "optimizer.alpha must be in [0, 1), got 1"),
        ("rmsprop", {"eps": 0}, "optimizer.eps must be > 0, got 0"),
        ("rmsprop", {"momentum": -0.1}, "optimizer.momentum must be in [0, 1), got -0.1"),
        ("rmsprop", {"form": "tf"}, "optimizer.form must be one of torch, tensorflow, got tf"),
        ("adam", {"beta1": 1}, "optimizer.beta1 must be in [0, 1), got 1"),
        ("adamw", {"beta2": -1}, "optimizer.beta2 must be in [0, 1), got -1"),
        ("adamw", {"eps": 0}, "optimizer.eps must be > 0, got 0"),
    ],
)
def test_what_is_out_of_range_is_refused_in_one_line(name: str, overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        read(name, **overrides)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "cosine"}, "kind must be one of step, linear, exponential, got cosine"),
        ({"factor": 0}, "factor must be > 0, got 0"),
        ({"at_epochs": [3.0, 1.0]}, "at_epochs must ascend, got [3.0, 1.0]"),
        ({"kind": "exponential", "at_epochs": [3.0]}, "at_epochs goes with kind=step, got exponential"),
        ({"kind": "exponential", "every_epochs": 0}, "every_epochs must be > 0, got 0"),
        ({"kind": "linear"}, "end_epoch must be set with kind=linear, got None"),
        ({"end_epoch": 3}, "end_epoch goes with kind=linear, got step"),
        ({"kind": "linear", "end_epoch": 2, "warmup_epochs": 2}, "end_epoch must be > warmup_epochs (2), got 2"),
        ({"kind": "linear", "end_epoch": float("nan")}, "end_epoch must be > warmup_epochs (0.0), got nan"),
        ({"kind": "linear", "end_epoch": 3, "final_factor": -1}, "final_factor must be >= 0, got -1"),
        ({"warmup_epochs": -1}, "warmup_epochs must be >= 0, got -1"),
        ({"warmup_epochs": 5, "warmup_from": 1.5}, "warmup_from must be in [0, 1], got 1.5"),
        (
            {"warmup_epochs": 5, "at_epochs": [3, 9]},
            "at_epochs must not lie before the end of the warm-up (5), got [3, 9]",
        ),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        ScheduleConfig(**options)
    assert str(caught.value) == f"optimizer.schedule.{message}"
