"""RunMonitor: the curve, the target, divergence and the reports of a run, without an engine."""

import math
from collections.abc import Mapping
from typing import Any

import pytest

from syncline.config import RunConfig, compose
from syncline.monitor import RunMonitor, evaluation_row, goodput
from syncline.progress import Progress, Totals

NUM_TRAIN = 100
LIVE = ("runner=local", "runner=local runner.pace=absolute")


@pytest.fixture
def config() -> RunConfig:
    return compose(["target.value=0.5", "epochs=4", "max_updates=50"])[0]


@pytest.fixture
def received() -> list[Mapping[str, Any] | Progress]:
    return []


@pytest.fixture
def monitor(config: RunConfig, received: list[Mapping[str, Any] | Progress]) -> RunMonitor:
    made = RunMonitor(config, received.append, received.append, wall_s=7.0)
    made.describe(NUM_TRAIN, 10, {})
    return made


def row(updates: int, accuracy: float, loss: float = 1.0) -> dict[str, Any]:
    metrics = {"accuracy": accuracy, "top5": 1.0, "loss": loss}
    return evaluation_row(0.1 * updates, updates, 10 * updates, NUM_TRAIN, metrics)


def test_real_processes_that_keep_no_pace_have_no_goodput() -> None:
    totals = Totals(2)
    totals.time_s = 1.0
    found = [goodput(compose(words.split())[0], totals, NUM_TRAIN) for words in ("", *LIVE)]
    assert found == [0.0, None, 0.0]


def test_the_target_is_reached_at_the_first_row_that_has_it(monitor: RunMonitor) -> None:
    for updates, accuracy in ((0, 0.1), (10, 0.5), (20, 0.9)):
        assert monitor.add(row(updates, accuracy))
        assert monitor.has_reached_target == (updates >= 10)
    summary = monitor.summary("simulation", Totals(1, time_s=2.0, updates=20, samples=200), "target", None)
    assert (summary["target"]["time_s"], summary["epochs"], summary["status"]) == (1.0, 2.0, "finished")
    assert summary["best"]["accuracy"]["updates"] == 20
    assert summary["wall_s"] >= 7.0


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_row_whose_loss_is_not_finite_is_divergence_and_no_point_of_the_curve(
    monitor: RunMonitor, received: list[Any], loss: float
) -> None:
    assert monitor.add(row(0, 0.1))
    assert not monitor.add(row(10, 0.9, loss))
    assert monitor.has_diverged
    assert not monitor.has_reached_target
    assert monitor.curve.rows == received == [row(0, 0.1)]


def test_a_restored_curve_drops_later_points_and_is_not_received_again(
    monitor: RunMonitor, received: list[Any]
) -> None:
    monitor.add(row(0, 0.1))
    monitor.add(row(10, 0.9))
    monitor.add(row(20, 0.9, math.nan))
    monitor.restore(monitor.curve.rows[:1])
    assert monitor.curve.rows == [row(0, 0.1)]
    assert len(received) == 2
    assert not monitor.has_diverged
    assert not monitor.has_reached_target


def test_a_report_follows_from_the_limits_and_the_last_evaluation(monitor: RunMonitor, received: list[Any]) -> None:
    assert monitor.is_report_due
    monitor.report(time_s=1.0, updates=10, samples=200, loss=2.0, count=None)
    assert not monitor.is_report_due
    (report,) = received
    assert (report.epoch, report.fraction, report.count) == (2.0, 0.5, None)
    assert math.isnan(report.value)
    monitor.add(row(10, 0.25))
    monitor.report(time_s=1.0, updates=40, samples=200, loss=2.0, count=3, fraction=0.125)
    assert (received[-1].value, received[-1].fraction, received[-1].count) == (0.25, 0.125, 3)
