"""Tables 2, 3 and 5, Figures 2 and 5: the scores of each strategy, how far they are from BSP's, two readings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from reports.dssync.text import SCORES, published_gap, published_score, strategy_name, task_name, text
from reports.exhibits import Exhibit, shows
from reports.figures import Figure, Panel, Points, Series, curve
from reports.measures import PERCENT, Measure, best, final
from reports.records import Artefact, Run
from reports.settings import learned_with
from reports.statistics import Sample, difference
from reports.tables import Column, Measured, Table

BSP = "bsp"
Strategies = Mapping[str, Sequence[Run]]  # strategy -> its runs
COLOURS = {"bsp": 0, "ds_sync": 1, "asp": 2, "ssp": 3}
STYLES = {"ssp": "--"}  # it may lie upon ASP's
LOSS = "loss"


def best_score(score: str) -> Measure:
    """Its best on the test set, in per cent except for the log loss."""
    return best(score, 1.0 if score == LOSS else PERCENT)


def samples(artefact: Artefact, task: str, score: str) -> dict[str, Sample]:
    """Strategy -> its best score, a value a seed; without those of which there is no run."""
    return artefact.samples(best_score(score), strategies(artefact, task))


def strategies(artefact: Artefact, task: str, batch: str = "") -> dict[str, list[Run]]:
    """Strategy -> its runs on a task, with the task's own batch unless another is named."""
    return artefact.by("strategy", task=task, batch=batch)


@dataclass(frozen=True, slots=True)
class Score:
    """A row of a table of scores: one score of one task, in the paper and of each strategy here."""

    table: str
    task: str
    score: str
    ours: Mapping[str, Sample]  # strategy -> its best, a value a seed

    @property
    def name(self) -> str:
        return f"{task_name(self.task)}: {SCORES[self.score]}"


def score_table(artefact: Artefact, strategies: Sequence[str], of_losses: bool) -> Table:
    """A row a task and score, the strategies side by side; of the log losses, or of all other scores."""
    table, digits = artefact.name.partition("/")[2], 4 if of_losses else 2
    rows = [
        Score(table, task, score, samples(artefact, task, score))
        for task in text()["tasks"]
        if task in text()[table]
        for score in text()["tasks"][task]["scores"]
        if (score == LOSS) == of_losses
    ]
    columns: list[Column[Score]] = [Column("task and score", lambda row: row.name)]
    for strategy in strategies:
        columns += _best_columns(strategy, digits)
    for strategy in strategies[1:]:
        columns += _gap_columns(strategy, digits)
    kind = "log loss" if of_losses else "scores"
    title = f"DS-Sync, {table.capitalize().replace('le', 'le ')}: best {kind}"
    return Table.of_artefact(artefact, title, rows, columns, notes(artefact))


def _best_columns(strategy: str, digits: int) -> list[Column[Score]]:
    def theirs(row: Score) -> str | None:
        """Mean and deviation as printed."""
        printed = published_score(row.table, row.task, strategy, row.score)
        return None if printed is None else " ± ".join(f"{value:.{digits}f}" for value in printed)

    return [
        Column(f"paper: {strategy_name(strategy)}", theirs, digits),
        Column(f"ours: {strategy_name(strategy)}", lambda row: row.ours.get(strategy), digits),
    ]


def _gap_columns(strategy: str, digits: int) -> list[Column[Score]]:
    name = f"{strategy_name(strategy)} less {strategy_name(BSP)}"
    return [
        Column(f"paper: {name}", lambda row: published_gap(row.table, row.task, strategy, BSP, row.score), digits),
        Column(f"ours: {name}", lambda row: difference(row.ours.get(strategy), row.ours.get(BSP)), digits),
    ]


AVERAGINGS = {  # label -> reading, and where it stands
    "ds_sync": "after_step (Algorithm 1; the authors' code for DeepFM and SQuAD)",
    "ds_sync_before": "before_forward (the authors' code for CIFAR and ImageNet)",
}


def averaging(artefact: Artefact) -> Table:
    """DS-Sync averaged after a step, and before the next: what is evaluated differs, and by how much."""

    there = strategies(artefact, "cifar10")
    ours = Measured(artefact, {strategy: there.get(strategy, []) for strategy in AVERAGINGS})
    columns: list[Column[str]] = [
        Column("strategy.average", lambda label: AVERAGINGS[label]),
        ours.column("best accuracy, %", best_score("accuracy"), 2),
        ours.column("accuracy at the end, %", final("accuracy", PERCENT), 2),
        ours.column("log loss at the end", final(LOSS), 4),
        ours.column("largest distance of a replica from the mean", lambda run: run.summary.get("divergence"), 4),
    ]
    return Table.of_artefact(
        artefact, "DS-Sync, where the averaging belongs", AVERAGINGS, columns, text()["notes"]["averaging"]
    )


def batches(artefact: Artefact) -> Table:
    """Criteo's task, which Adam learns, with batches of several sizes; no rows where it has but one.

    How far apart BSP and DS-Sync end, and after how many epochs each has its best.
    """
    batches = sorted(artefact.by("batch", task="criteo"))
    by_batch = [strategies(artefact, "criteo", batch) for batch in batches] if len(batches) > 1 else []

    def ours(strategy: str, measure: Measure) -> Callable[[Strategies], Sample]:
        return lambda rows: artefact.sample(rows[strategy], measure)

    names = {strategy: strategy_name(strategy) for strategy in (BSP, "ds_sync")}
    aucs = {strategy: ours(strategy, best_score("auc")) for strategy in names}
    columns: list[Column[Strategies]] = [
        Column("clicks a gradient", lambda rows: rows[BSP][0].config["batch_size"], 0),
        Column("rate", lambda rows: rows[BSP][0].config["optimizer"]["lr"], 3),
        *(Column(f"{names[strategy]}: AUC, %", auc, 2) for strategy, auc in aucs.items()),
        Column("DS-Sync less BSP", lambda rows: aucs["ds_sync"](rows) - aucs[BSP](rows), 2),
        *(
            Column(f"{name}: epoch of its best", ours(strategy, lambda run: run.summary["best"]["auc"]["epoch"]))
            for strategy, name in names.items()
        ),
    ]
    return Table.of_artefact(artefact, "DS-Sync, Adam with gradients of more and fewer clicks", by_batch, columns, [])


def notes(artefact: Artefact) -> list[str]:
    """What a reader must know to compare."""
    lines = [*text()["notes"]["scores"]]
    by_task = artefact.by("task", batch="")
    learned = {task: run for task, runs in by_task.items() for run in runs[:1] if run.summary["best"]}
    tasks = {task: learned[task].config for task in text()["tasks"] if task in learned}
    if artefact.scale != "paper":
        ours = ", ".join(f"{learned_with(config)} ({task_name(task)})" for task, config in tasks.items())
        lines.append(f"Ours are small tasks in place of the paper's: {ours}. Only differences can be compared.")
    alone = sorted(by_task.keys() - learned.keys())
    if alone:
        lines.append(f"Not learned at this scale, times alone: {', '.join(map(task_name, alone))}.")
    return lines


def show_scores(*strategies: str, **others: Callable[[Artefact], Table]) -> Callable[[Artefact], Exhibit]:
    """The scores of these strategies, their log losses, and other tables."""
    scores, losses = (partial(score_table, strategies=strategies, of_losses=of_losses) for of_losses in (False, True))
    return shows(scores, loss=losses, **others)


# Figures 2 and 5.


def by_iteration(run: Run, score: str) -> Points:
    """A score in per cent against iterations: a gradient of each worker."""
    a_step = run.config["batch_size"] * run.num_workers
    return [row["samples"] / a_step for row in run.metrics], [100.0 * row[score] for row in run.metrics]


def curves(artefact: Artefact, table: str, title: str) -> Figure:
    """A panel a task that was learned; on the paper's own data stars are the best values of its table."""
    panels, left_out = [], []
    for task in (task for task in text()["tasks"] if task in text()[table]):
        learned = {strategy: runs for strategy, runs in strategies(artefact, task).items() if runs[0].metrics}
        if learned:
            panels.append(_panel(task, table, learned))
        else:
            left_out.append(task_name(task))
    lines = [*text()["notes"]["curves"]]
    if left_out:
        lines.append(f"Not learned at this scale: {', '.join(left_out)}.")
    return Figure(f"{title}, at scale {artefact.scale}", panels, [*lines, *artefact.closing_notes])


def _panel(task: str, table: str, rows: Mapping[str, Sequence[Run]]) -> Panel:
    first = next(iter(rows.values()))[0]
    score, data = first.summary["metric"], first.config["dataset"]["name"]
    series = [
        curve(strategy_name(key), [by_iteration(run, score) for run in runs], COLOURS[key], STYLES.get(key))
        for key, runs in rows.items()
    ]
    title = task_name(task)
    if data == task:
        last = max(series[0].x)
        stars = [found[0] for strategy in rows if (found := published_score(table, task, strategy, score))]
        series.append(Series("paper: best of each", [last] * len(stars), stars, "points", published=True))
    else:
        title += f", here {data}"
    return Panel("iteration", f"test {SCORES[score]}", series, title)
