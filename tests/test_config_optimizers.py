"""Schemas of the optimizers: ranges, and that each reaches the code it stands for."""

import inspect
import re
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
    return OPTIMIZERS[plain["name"]](**plain | {"schedule": ScheduleConfig(**plain.get("schedule", {}))} | overrides)


def options_of(config: Any) -> dict[str, Any]:
    """What the optimizer itself is built from."""
    others = ("name", "lr", "clip_norm", "average_decay", "schedule", "decays")
    return {key: value for key, value in asdict(config).items() if key not in others}


@pytest.mark.parametrize("path", CHOICES, ids=lambda path: path.stem)
def test_a_choice_is_of_its_schema_and_can_be_built(path: Path) -> None:
    config = read(path.stem)
    assert type(config) is OPTIMIZERS[config.name]
    optimizer.OPTIMIZERS[config.name](**options_of(config))
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
    built = optimizer.OPTIMIZERS[config.name](**options_of(config))
    assert isinstance(built, rmsprop.RmsProp)
    assert (built.form, built.eps, config.average_decay is None) == ("tensorflow", 1.0, False)


def test_nesterov_needs_momentum() -> None:
    with pytest.raises(ValueError, match=r"^optimizer\.nesterov needs optimizer\.momentum > 0, got 0"):
        read("nesterov", momentum=0)


@pytest.mark.parametrize(
    ("options", "key", "allowed"),
    [
        ({"at_epochs": [3.0, 1.0]}, "at_epochs", "must ascend"),
        ({"kind": "exponential", "at_epochs": [3.0]}, "at_epochs", "goes with kind=step"),
        ({"kind": "linear"}, "end_epoch", "must be set with kind=linear"),
        ({"kind": "cosine"}, "end_epoch", "must be set with kind=cosine"),
        ({"end_epoch": 3}, "end_epoch", "goes with kind=linear and kind=cosine"),
        ({"from_epoch": 3}, "from_epoch", "goes with kind=linear and kind=cosine"),
        (
            {"kind": "cosine", "end_epoch": 9, "from_epoch": 1, "warmup_epochs": 2},
            "from_epoch",
            "before the end of the warm-up (2)",
        ),
        ({"kind": "cosine", "end_epoch": 9, "from_epoch": 9}, "end_epoch", "> from_epoch (9)"),
        ({"kind": "linear", "end_epoch": 2, "warmup_epochs": 2}, "end_epoch", "> warmup_epochs (2)"),
        ({"kind": "linear", "end_epoch": float("nan")}, "end_epoch", "> warmup_epochs (0.0)"),
        ({"warmup_epochs": 5, "at_epochs": [3, 9]}, "at_epochs", "not lie before the end of the warm-up (5)"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(options: dict[str, Any], key: str, allowed: str) -> None:
    with pytest.raises(ValueError, match=rf"^optimizer\.schedule\.{key} .*{re.escape(allowed)}, got "):
        ScheduleConfig(**options)
