"""Table 1: running time and error, the published beside ours."""

from reports.exhibits import Exhibit
from reports.psp.runs import (
    DELAYED,
    IN_TIME,
    NEWEST,
    TIMING,
    errors_of,
    final_error,
    minutes,
    minutes_of,
    name_of,
    thrown_away,
)
from reports.records import Artefact, Run, in_summary, published
from reports.statistics import paired_ratio
from reports.tables import Column, Table, Value


def show_table1(artefact: Artefact) -> Exhibit:
    return {"": table1(artefact), "gradients": gradients(artefact)}


def table1(artefact: Artefact) -> Table:
    """A row a setting: the paper's, the other reading's, those without delays; ratios are to Sync under delays."""
    printed, rows = published("psp")["table1"]["rows"], artefact.rows()
    base = f"{DELAYED}/sync"
    times = {label: artefact.sample(runs, minutes) for label, runs in rows.items() if label.endswith(TIMING)}
    sync, theirs_sync = times.get(base + TIMING), printed["sync"][2]
    body: list[list[Value]] = []
    for label, runs in rows.items():
        if label.endswith(TIMING):
            continue
        scenario, setting = label.split("/")
        theirs = printed.get(setting) if scenario == DELAYED else None
        time = times.get(label + TIMING)
        body.append(
            [
                row_name(label),
                None if theirs is None else theirs[2],
                time,
                None if theirs is None else theirs[2] / theirs_sync,
                None if time is None or sync is None else paired_ratio(time.values, sync.values),
                None if theirs is None else 100.0 * theirs[3],
                artefact.sample(runs, final_error),
            ]
        )
    columns = [
        Column("setting"),
        Column("paper: minutes", 2),
        Column("ours: minutes, times alone", 2),
        Column("paper: time / Sync's", 2),
        Column("ours: time / Sync's", 3),
        Column("paper: top-1 error, %", 2),
        Column("ours: top-1 error, %", 2, show_n=True),
    ]
    return Table(f"PSP, Table 1, at scale {artefact.scale}", columns, body, notes(artefact), 5)


def gradients(artefact: Artefact) -> Table:
    """What became of the gradients, from the runs of times alone."""
    body: list[list[Value]] = [
        [
            row_name(label),
            artefact.sample(runs, thrown_away),
            artefact.sample(runs, in_summary("mean_staleness")),
            artefact.sample(runs, largest_staleness),
        ]
        for label, runs in artefact.rows().items()
        if label.endswith(TIMING)
    ]
    columns = [
        Column("setting"),
        Column("gradients thrown away, %", 2),
        Column("mean staleness", 3),
        Column("largest staleness", 1),
    ]
    lines = [
        "At the first of the servers. A worker's counter that goes up by one (tag=step) leaves a late worker late: "
        "its gradients are thrown away until it waits for somebody. Where it jumps (tag=newest) the next one counts.",
        *artefact.closing_notes,
    ]
    return Table(f"PSP, Table 1: what became of the gradients, at scale {artefact.scale}", columns, body, lines)


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
    if any(run.summary["status"] == "diverged" for run in artefact.runs):
        lines.append("(k/n): only k of n seeds have an error; the others diverged.")
    lines.append(
        f"The published errors are those of ResNet-50 on CIFAR-10 after {paper['epochs']} epochs, the average of three "
        "runs. Three statements of the text do not fit each other: 30 % less than a Sync that delays prolong by 30 % "
        "is 9 % less than Sync without delays, not as long."
    )
    return lines + artefact.closing_notes


def _sizes(artefact: Artefact) -> list[str]:
    """How large the runs are that minutes, and errors, are taken from."""
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
        longer = paired_ratio(
            minutes_of(artefact, f"{DELAYED}/sync").values, minutes_of(artefact, f"{IN_TIME}/sync").values
        )
    except KeyError:
        return []
    said = 100 * published("psp")["prolonged_by"]
    return [f'Delays prolong Sync by {100 * (longer.mean - 1):.1f} %; the paper says "nearly {said:.0f} %".']


def _readings(artefact: Artefact) -> list[str]:
    """What partial pushing saves by each reading of Algorithm 1, line 18."""
    try:
        sync, step, newest = (
            minutes_of(artefact, f"{DELAYED}/{setting}") for setting in ("sync", "push28", f"push28{NEWEST}")
        )
        wrong = [errors_of(artefact, f"{DELAYED}/push20_pull75{suffix}").mean for suffix in ("", NEWEST)]
    except KeyError:
        return []
    saved = [100 * (1 - paired_ratio(times.values, sync.values).mean) for times in (step, newest)]
    rows = published("psp")["table1"]["rows"]
    return [
        "Readings of a worker's counter (Algorithm 1, line 18): it goes up by one (tag=step), or jumps to the newest "
        f"block (tag=newest). With c = 28 the first saves {saved[0]:.1f} % of Sync's time, the second {saved[1]:.1f} "
        f"%; the paper {100 * (1 - rows['push28'][2] / rows['sync'][2]):.1f} %. With c = 20, b = 75 % they end at "
        f"errors of {wrong[0]:.2f} and {wrong[1]:.2f} %."
    ]
