"""Figures 2 and 5: what is judged on the test set, against iteration."""

from collections.abc import Sequence

from reports.dssync.text import SCORES, published_score, strategy_name, task_name, text
from reports.figures import Figure, Panel, Points, Series, curve
from reports.records import Artefact, Run

COLOURS = {"bsp": 0, "ds_sync": 1, "asp": 2, "ssp": 3}
STYLES = {"ssp": "--"}  # it may lie upon ASP's


def by_iteration(run: Run, score: str) -> Points:
    """A score in per cent against iterations: a gradient of each worker."""
    a_step = run.config["batch_size"] * run.num_workers
    return [row["samples"] / a_step for row in run.metrics], [100.0 * row[score] for row in run.metrics]


def figure(artefact: Artefact, table: str, title: str) -> Figure:
    """A panel a task that was learned; on the paper's own data stars are the best values of its table."""
    panels, left_out = [], []
    for task in (task for task in text()["tasks"] if task in text()[table]):
        rows = {label: runs for label, runs in artefact.rows().items() if label.startswith(f"{task}/")}
        learned = {label.rpartition("/")[2]: runs for label, runs in rows.items() if runs[0].metrics}
        if learned:
            panels.append(_panel(task, table, learned))
        else:
            left_out.append(task_name(task))
    notes = [
        "Mean over seeds, the band from the lowest to the highest. An iteration is one gradient of every worker; ASP "
        "and SSP apply as many updates in it as there are workers. Stars, where the data are the paper's: the best of "
        "its table."
    ]
    if left_out:
        notes.append(f"Not learned at this scale: {', '.join(left_out)}.")
    return Figure(f"{title}, at scale {artefact.scale}", panels, [*notes, *artefact.closing_notes])


def _panel(task: str, table: str, rows: dict[str, Sequence[Run]] | dict[str, list[Run]]) -> Panel:
    score = next(iter(rows.values()))[0].summary["metric"]
    series = [
        curve(strategy_name(key), [by_iteration(run, score) for run in runs], COLOURS[key], STYLES.get(key))
        for key, runs in rows.items()
    ]
    data: str = next(iter(rows.values()))[0].config["dataset"]["name"]
    if data != task:
        return Panel("iteration", f"test {SCORES[score]}", series, f"{task_name(task)}, here {data}")
    last = max(series[0].x)
    stars = [found[0] for strategy in rows if (found := published_score(table, task, strategy, score))]
    series.append(Series("paper: best of each", [last] * len(stars), stars, "points", published=True))
    return Panel("iteration", f"test {SCORES[score]}", series, task_name(task))
