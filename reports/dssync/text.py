"""What the text of DS-Sync gives of a task, a strategy and a number of workers."""

from typing import Any

from reports.records import published

SCORES = {
    "accuracy": "accuracy, %",
    "top5": "top-5 accuracy, %",
    "exact_match": "exact match, %",
    "f1": "F1, %",
    "auc": "AUC, %",
    "loss": "log loss",
}


def text() -> Any:
    """The numbers of the paper's text."""
    return published("dssync")


def task_name(task: str) -> str:
    return str(text()["tasks"][task]["name"])


def strategy_name(strategy: str) -> str:
    return str(text()["strategies"][strategy])


def published_score(table: str, task: str, strategy: str, score: str) -> list[float] | None:
    """[mean, deviation], or [value] of what was run once; None where the table has none."""
    found: list[float] | None = text()[table].get(task, {}).get(strategy, {}).get(score)
    return found


def published_gap(table: str, task: str, strategy: str, other: str, score: str) -> float | None:
    """A strategy's mean score less another's; None where the table has not both."""
    own, others = (published_score(table, task, name, score) for name in (strategy, other))
    return None if own is None or others is None else own[0] - others[0]


def published_target(task: str, num_workers: int, strategy: str, key: str) -> float | None:
    """`iterations` or `seconds` to the target by Table 4; None where it has none."""
    row = text()["table4"].get(num_workers, {}).get(task, {}).get(strategy)
    return None if row is None else float(row[key])


def published_step_s(task: str, num_workers: int, strategy: str) -> float | None:
    """Seconds of an iteration by Table 4; None where it has none."""
    iterations, seconds = (published_target(task, num_workers, strategy, key) for key in ("iterations", "seconds"))
    return None if iterations is None or seconds is None else seconds / iterations


def published_speedup(task: str, num_workers: int) -> float | None:
    """How many times as fast an iteration of DS-Sync is as BSP's by Table 4; None where it has none."""
    whole, grouped = (published_step_s(task, num_workers, strategy) for strategy in ("bsp", "ds_sync"))
    return None if whole is None or grouped is None else whole / grouped
