"""Tables 2, 3 and 5: the best that each strategy reaches, how far that is from BSP's, and DS-Sync's two readings."""

from collections.abc import Callable, Sequence

from reports.dssync.text import SCORES, published_gap, published_score, strategy_name, task_name, text
from reports.exhibits import Exhibit
from reports.records import Artefact, Run
from reports.statistics import Sample, paired_difference
from reports.tables import Column, Table, Value

BSP = "bsp"
LOSS = "loss"


def best(score: str) -> Callable[[Run], float | None]:
    """A run -> its best on the test set, in per cent but for the log loss; None where nothing was learned."""

    def read(run: Run) -> float | None:
        found = run.summary["best"]
        if not found:
            return None
        value: float = found[score]["value"]
        return value if score == LOSS else 100.0 * value

    return read


def samples(artefact: Artefact, task: str, score: str) -> dict[str, Sample]:
    """Strategy -> its best score, a value a seed; without those of which there is no run."""
    return {
        label.rpartition("/")[2]: artefact.sample(runs, best(score))
        for label, runs in artefact.rows().items()
        if label.rpartition("/")[0] == task
    }


def score_table(artefact: Artefact, strategies: Sequence[str], of_losses: bool) -> Table:
    """A row a task and score, the strategies side by side; of the log losses, or of all other scores."""
    name = artefact.name.partition("/")[2]
    columns = [Column("task and score")]
    digits = 4 if of_losses else 2
    for strategy in strategies:
        columns += [Column(f"{side}: {strategy_name(strategy)}", digits) for side in ("paper", "ours")]
    for strategy in strategies[1:]:
        gap = f"{strategy_name(strategy)} less {strategy_name(BSP)}"
        columns += [Column(f"{side}: {gap}", digits) for side in ("paper", "ours")]
    rows: list[list[Value]] = []
    for task in (task for task in text()["tasks"] if task in text()[name]):
        for score in (score for score in text()["tasks"][task]["scores"] if (score == LOSS) == of_losses):
            ours = samples(artefact, task, score)
            row: list[Value] = [f"{task_name(task)}: {SCORES[score]}"]
            for strategy in strategies:
                row += [_printed(published_score(name, task, strategy, score), digits), ours.get(strategy)]
            for strategy in strategies[1:]:
                row += [published_gap(name, task, strategy, BSP, score), gap_to(ours, strategy, BSP)]
            rows.append(row)
    kind = "log loss" if of_losses else "scores"
    title = f"DS-Sync, {name.capitalize().replace('le', 'le ')}: best {kind}, at scale {artefact.scale}"
    return Table(title, columns, rows, notes(artefact), 1 + 2 * len(strategies))


def gap_to(ours: dict[str, Sample], strategy: str, other: str) -> Sample | None:
    """A strategy's score less another's, seed by seed; None where one was not run."""
    if strategy not in ours or other not in ours:
        return None
    return paired_difference(ours[strategy].values, ours[other].values)


def averaging(artefact: Artefact) -> Table:
    """DS-Sync averaged after a step, and before the next: what is evaluated differs, and by how much."""
    rows: list[list[Value]] = []
    names = {"ds_sync": "after_step (Algorithm 1)", "ds_sync_before": "before_forward (the authors' CIFAR code)"}
    of_task = {
        label.rpartition("/")[2]: runs for label, runs in artefact.rows().items() if label.startswith("cifar10/")
    }
    for label, name in names.items():
        runs = of_task.get(label, [])

        def final(score: str, scale: float, runs: Sequence[Run] = runs) -> Sample:
            def read(run: Run) -> float | None:
                found = run.summary["final"]
                return None if found is None else scale * float(found[score])

            return artefact.sample(runs, read)

        divergence = artefact.sample(runs, lambda run: run.summary.get("divergence"))
        rows.append(
            [name, artefact.sample(runs, best("accuracy")), final("accuracy", 100.0), final(LOSS, 1.0), divergence]
        )
    columns = [
        Column("strategy.average"),
        Column("best accuracy, %", 2),
        Column("accuracy at the end, %", 2),
        Column("log loss at the end", 4),
        Column("largest distance of a replica from the mean", 4),
    ]
    lines = [
        "CIFAR-10's task. What is evaluated is the mean of all replicas: with before_forward, of replicas that have "
        "each "
        "made a step of their own since they were averaged.",
        *artefact.closing_notes,
    ]
    return Table(f"DS-Sync, where the averaging belongs, at scale {artefact.scale}", columns, rows, lines)


def notes(artefact: Artefact) -> list[str]:
    """What a reader must know to compare."""
    lines = [
        "Best over a run's evaluations, of the test set. Paper: mean ± deviation over five runs with 4 nodes, three "
        "with 16, "
        "one of ImageNet. Ours: mean ± sample standard deviation; differences seed by seed."
    ]
    if artefact.scale in ("smoke", "laptop"):
        lines.append(
            "Ours are small tasks in place of the paper's: digits (CIFAR-10), drawn letters (CIFAR-100), questions "
            "on generated "
            "lives (SQuAD), clicks of a known machine (Criteo). Only differences between strategies can be compared."
        )
    alone = sorted({label.partition("/")[0] for label, runs in artefact.rows().items() if not runs[0].summary["best"]})
    if alone:
        lines.append(f"Not learned at this scale, times alone: {', '.join(map(task_name, alone))}.")
    return [*lines, *artefact.closing_notes]


def show_table2(artefact: Artefact) -> Exhibit:
    return _show(artefact, ("bsp", "asp", "ds_sync"))


def show_table3(artefact: Artefact) -> Exhibit:
    return {**_show(artefact, ("bsp", "ds_sync")), "average": averaging(artefact)}


def show_table5(artefact: Artefact) -> Exhibit:
    return _show(artefact, ("bsp", "asp", "ssp", "ds_sync"))


def _show(artefact: Artefact, strategies: Sequence[str]) -> Exhibit:
    return {"": score_table(artefact, strategies, False), "loss": score_table(artefact, strategies, True)}


def _printed(pair: list[float] | None, digits: int) -> str | None:
    return None if pair is None else " ± ".join(f"{value:.{digits}f}" for value in pair)
