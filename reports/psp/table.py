"""Table 1: running time and error, published and ours."""

from collections.abc import Callable, Mapping

from reports.measures import in_summary
from reports.psp.runs import DELAYED, IN_TIME, NEWEST, discarded, final_error, minutes, name_of
from reports.records import Artefact, Run, published
from reports.statistics import ratio
from reports.tables import Column, Table

Row = tuple[str, str]  # scenario, setting
SYNC = DELAYED, "sync"  # what all times are compared with
ROW = "scenario", "setting"


def table1(artefact: Artefact) -> Table:
    """A row a setting: the paper's, the other reading's, those without delays; ratios are to Sync under delays."""
    times = artefact.samples(minutes, artefact.by(*ROW, timed=True))
    errors = artefact.samples(final_error, artefact.by(*ROW, timed=False))
    printed = published("psp")["table1"]["rows"]

    def theirs(value: Callable[[Mapping[str, float]], float]) -> Callable[[Row], float | None]:
        return lambda row: value(printed[row[1]]) if row[0] == DELAYED and row[1] in printed else None

    sync = printed["sync"]["minutes"]
    columns: list[Column[Row]] = [
        Column("setting", row_name),
        Column("paper: minutes", theirs(lambda row: row["minutes"]), 2),
        Column("ours: minutes, times alone", times.get, 2),
        Column("paper: time / Sync's", theirs(lambda row: row["minutes"] / sync), 2),
        Column("ours: time / Sync's", lambda row: ratio(times.get(row), times.get(SYNC)), 3),
        Column("paper: top-1 error, %", theirs(lambda row: 100.0 * row["error"]), 2),
        Column("ours: top-1 error, %", errors.get, 2, show_n=True),
    ]
    rows = artefact.by(*ROW)  # also those that learn nothing here
    return Table.of_artefact(artefact, "PSP, Table 1", rows, columns, notes(artefact))


def gradients(artefact: Artefact) -> Table:
    """How many gradients were discarded, and how stale the others were; from the runs of times alone."""
    rows = artefact.by(*ROW, timed=True)
    columns: list[Column[Row]] = [
        Column("setting", row_name),
        Column("gradients discarded, %", lambda row: artefact.sample(rows[row], discarded), 2),
        Column("mean staleness", lambda row: artefact.sample(rows[row], in_summary("mean_staleness")), 3),
        Column("largest staleness", lambda row: artefact.sample(rows[row], largest_staleness), 1),
    ]
    return Table.of_artefact(
        artefact, "PSP, Table 1: used and discarded gradients", rows, columns, published("psp")["notes"]["gradients"]
    )


def row_name(row: Row) -> str:
    scenario, setting = row
    return name_of(setting) + (", no delays" if scenario == IN_TIME else "")


def largest_staleness(run: Run) -> float:
    """Of the gradients used."""
    return float(max(map(int, run.summary["staleness"]), default=0))


def notes(artefact: Artefact) -> list[str]:
    """What a reader must know to compare."""
    paper = published("psp")
    lines = [*_sizes(artefact), *_prolonged(artefact), *_readings(artefact)]
    if any(run.is_diverged for run in artefact.runs):
        lines.append("(k/n): only k of n seeds have an error; the others diverged.")
    return [*lines, paper["notes"]["errors"].format(epochs=paper["table1"]["epochs"])]


def _sizes(artefact: Artefact) -> list[str]:
    """The sizes of the runs behind the minutes and the errors."""
    runs = artefact.by("timed")
    lines = []
    if True in runs:
        updates, full = runs[True][0].config["max_updates"], published("psp")["table1"]["updates"]
        size = "as many as the paper's" if updates == full else f"the paper's are {full}"
        lines.append(f"Minutes: {updates} updates of times alone, {size}.")
    if False in runs:
        lines.append(f"Errors: after {runs[False][0].config['max_updates']} updates of the runs that learn.")
    return lines


def _prolonged(artefact: Artefact) -> list[str]:
    times = artefact.samples(minutes)
    try:
        longer = times["delayed/sync/timing"] / times["in_time/sync/timing"]
    except KeyError:
        return []
    said = 100 * published("psp")["prolonged_by"]
    return [f'Delays prolong Sync by {100 * (longer.mean - 1):.1f} %; the paper says "nearly {said:.0f} %".']


def _readings(artefact: Artefact) -> list[str]:
    """The time that partial pushing saves in each reading of Algorithm 1, line 18."""
    times, errors = artefact.samples(minutes), artefact.samples(final_error)
    try:
        settings = ("sync", "push28", f"push28{NEWEST}")
        sync, step, newest = (times[f"{DELAYED}/{setting}/timing"] for setting in settings)
        wrong = [errors[f"{DELAYED}/push20_pull75{suffix}"].mean for suffix in ("", NEWEST)]
    except KeyError:
        return []
    saved = [100 * (1 - (times / sync).mean) for times in (step, newest)]
    rows = published("psp")["table1"]["rows"]
    theirs = 100 * (1 - rows["push28"]["minutes"] / rows["sync"]["minutes"])
    note: str = published("psp")["notes"]["readings"]
    return [note.format(step=saved[0], newest=saved[1], paper=theirs, step_error=wrong[0], newest_error=wrong[1])]
