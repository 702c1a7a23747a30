"""Table 1: running time and error, published and ours."""

from collections.abc import Callable, Mapping

from reports.psp.runs import DELAYED, IN_TIME, NEWEST, TIMING, discarded, errors_of, minutes, minutes_of, name_of
from reports.records import Artefact, Run, in_summary, published
from reports.statistics import ratio
from reports.tables import Column, Table

SYNC = f"{DELAYED}/sync"  # what all times are compared with


def table1(artefact: Artefact) -> Table:
    """A row a setting: the paper's, the other reading's, those without delays; ratios are to Sync under delays."""
    times, rows, printed = artefact.samples(minutes), artefact.rows(), published("psp")["table1"]["rows"]

    def theirs(label: str, value: Callable[[Mapping[str, float]], float]) -> float | None:
        scenario, setting = label.split("/")
        return value(printed[setting]) if scenario == DELAYED and setting in printed else None

    columns = [
        Column("setting", row_name),
        Column("paper: minutes", lambda label: theirs(label, lambda row: row["minutes"]), 2),
        Column("ours: minutes, times alone", lambda label: times.get(label + TIMING), 2),
        Column(
            "paper: time / Sync's",
            lambda label: theirs(label, lambda row: row["minutes"] / printed["sync"]["minutes"]),
            2,
        ),
        Column("ours: time / Sync's", lambda label: ratio(times.get(label + TIMING), times.get(SYNC + TIMING)), 3),
        Column("paper: top-1 error, %", lambda label: theirs(label, lambda row: 100.0 * row["error"]), 2),
        Column(
            "ours: top-1 error, %", lambda label: errors_of(artefact, label) if label in rows else None, 2, show_n=True
        ),
    ]
    labels = dict.fromkeys(
        label.removesuffix(TIMING) for label in artefact.rows()
    )  # also those that learn nothing here
    return Table.of_artefact(artefact, "PSP, Table 1", labels, columns, notes(artefact), 5)


def gradients(artefact: Artefact) -> Table:
    """How many gradients were discarded, and how stale the others were; from the runs of times alone."""
    rows = {label: runs for label, runs in artefact.rows().items() if label.endswith(TIMING)}
    columns = [
        Column("setting", row_name),
        Column("gradients discarded, %", lambda label: artefact.sample(rows[label], discarded), 2),
        Column("mean staleness", lambda label: artefact.sample(rows[label], in_summary("mean_staleness")), 3),
        Column("largest staleness", lambda label: artefact.sample(rows[label], largest_staleness), 1),
    ]
    lines = [
        "At the first of the servers. A worker's counter that goes up by one (tag=step) leaves a late worker late: its "
        "gradients are discarded until it waits for another worker. Where it jumps (tag=newest) the next one counts."
    ]
    return Table.of_artefact(artefact, "PSP, Table 1: used and discarded gradients", rows, columns, lines)


def row_name(label: str) -> str:
    scenario, setting = label.removesuffix(TIMING).split("/")
    return name_of(setting) + (", no delays" if scenario == IN_TIME else "")


def largest_staleness(run: Run) -> float:
    """Of the gradients used."""
    return float(max(map(int, run.summary["staleness"]), default=0))


def notes(artefact: Artefact) -> list[str]:
    """What a reader must know to compare."""
    paper = published("psp")["table1"]
    lines = [*_sizes(artefact), *_prolonged(artefact), *_readings(artefact)]
    if any(run.is_diverged for run in artefact.runs):
        lines.append("(k/n): only k of n seeds have an error; the others diverged.")
    lines.append(
        f"The published errors are those of ResNet-50 on CIFAR-10 after {paper['epochs']} epochs, the average of three "
        "runs. Three statements of the text do not fit each other: 30 % less than a Sync that delays prolong by 30 % "
        "is 9 % less than Sync without delays, not as long."
    )
    return lines


def _sizes(artefact: Artefact) -> list[str]:
    """The sizes of the runs behind the minutes and the errors."""
    timed = next((run for run in artefact.runs if run.label.endswith(TIMING)), None)
    learned = next((run for run in artefact.runs if not run.label.endswith(TIMING)), None)
    lines = []
    if timed is not None:
        updates, full = timed.config["max_updates"], published("psp")["table1"]["updates"]
        size = "as many as the paper's" if updates == full else f"the paper's are {full}"
        lines.append(f"Minutes: {updates} updates of times alone, {size}.")
    if learned is not None:
        lines.append(f"Errors: after {learned.config['max_updates']} updates of the runs that learn.")
    return lines


def _prolonged(artefact: Artefact) -> list[str]:
    try:
        longer = minutes_of(artefact, SYNC) / minutes_of(artefact, f"{IN_TIME}/sync")
    except KeyError:
        return []
    said = 100 * published("psp")["prolonged_by"]
    return [f'Delays prolong Sync by {100 * (longer.mean - 1):.1f} %; the paper says "nearly {said:.0f} %".']


def _readings(artefact: Artefact) -> list[str]:
    """The time that partial pushing saves in each reading of Algorithm 1, line 18."""
    try:
        settings = ("sync", "push28", f"push28{NEWEST}")
        sync, step, newest = (minutes_of(artefact, f"{DELAYED}/{setting}") for setting in settings)
        wrong = [errors_of(artefact, f"{DELAYED}/push20_pull75{suffix}").mean for suffix in ("", NEWEST)]
    except KeyError:
        return []
    saved = [100 * (1 - (times / sync).mean) for times in (step, newest)]
    rows = published("psp")["table1"]["rows"]
    theirs = 100 * (1 - rows["push28"]["minutes"] / rows["sync"]["minutes"])
    return [
        "Readings of a worker's counter (Algorithm 1, line 18): it goes up by one (tag=step), or jumps to the newest "
        f"block (tag=newest). With c = 28 the first saves {saved[0]:.1f} % of Sync's time, the second {saved[1]:.1f} "
        f"%; the paper {theirs:.1f} %. With c = 20, b = 75 % they end at errors of {wrong[0]:.2f} and {wrong[1]:.2f} %."
    ]
