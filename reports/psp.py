"""The artefacts of the PSP paper (ICLR 2018 submission): Table 1, its running times."""

from typing import Any

from reports.exhibits import Exhibit, Paper
from reports.records import Artefact, Run, in_summary, published
from reports.statistics import paired_ratio
from reports.tables import Column, Table


def minutes(run: Run) -> float:
    """Virtual minutes of the whole run."""
    seconds: float = run.summary["time_s"]
    return seconds / 60.0


def thrown_away(run: Run) -> float:
    """Per cent of the gradients that reached the first server and came too late for it."""
    used, late = run.summary["gradients_used"], run.summary["gradients_discarded"]
    return 100.0 * float(late) / float(used + late)


def table1(artefact: Artefact) -> Table:
    """Table 1: the published minutes beside ours, and both beside those of synchronous SGD."""
    paper = published("psp")
    printed, rows = paper["table1"]["rows"], artefact.rows()
    times = {label: artefact.sample(runs, minutes) for label, runs in rows.items()}
    body: list[list[Any]] = []
    for label, runs in rows.items():
        strategy = runs[0].config["strategy"]
        _, _, theirs, error = printed.get(label, (None, None, None, None))
        body.append(
            [
                paper["names"][label],
                strategy["c"],
                strategy["b"],
                theirs,
                times[label],
                None if theirs is None else theirs / printed["sync"][2],
                paired_ratio(times[label].values, times["sync"].values) if "sync" in times else None,
                artefact.sample(runs, thrown_away),
                artefact.sample(runs, in_summary("mean_staleness")),
                error,
            ]
        )
    columns = [
        Column("setting"),
        Column("c", 0),
        Column("b, %", 0),
        Column("paper: minutes", 2),
        Column("ours: minutes", 2),
        Column("paper: time / Sync's", 2),
        Column("ours: time / Sync's", 3),
        Column("gradients thrown away, %", 2),
        Column("mean staleness", 3),
        Column("paper: top-1 error", 4),
    ]
    return Table(f"PSP, Table 1, at scale {artefact.scale}", columns, body, notes(artefact), 7)


def notes(artefact: Artefact) -> list[str]:
    """What a reader must know to compare: setting, spread, readings, command."""
    paper, rows = published("psp"), artefact.rows()
    first = artefact.runs[0]
    cluster = first.config["cluster"]
    jitter, delay = cluster["network"]["jitter"], _delay(artefact)
    lines = [
        f"Engine {first.summary['engine']}, {first.summary['time_kind']} time, times alone (nothing is learned): "
        f"{first.config['max_updates']} updates = {paper['table1']['epochs']} epochs of {paper['table1']['images']:,} "
        f"images in updates of {cluster['workers']} x {first.config['batch_size']}.",
        f"Cluster {cluster['name']}: {cluster['workers']} workers, {cluster['shards']} servers, "
        f"{cluster['gradient_s'][0]:g} s a gradient (derived from the published 139.95 min alone), "
        f"{jitter['low']:g} to {jitter['high']:g} s a message; {delay}.",
        f"Seeds {', '.join(map(str, artefact.seeds))}: mean ± sample standard deviation; ratios are taken seed by "
        "seed. The paper shows the average of three runs.",
        "Readings: a worker's counter goes up by one (tag=step), or jumps to the newest block (tag=newest). No "
        "timeouts, as in section 4.2.",
    ]
    if {"sync", "sync_in_time"} <= set(rows):
        with_delays, without = (artefact.sample(rows[label], minutes) for label in ("sync", "sync_in_time"))
        longer = paired_ratio(with_delays.values, without.values)
        lines.append(
            f'Delays prolong Sync by {100 * (longer.mean - 1):.1f} %; the paper says "nearly '
            f'{100 * paper["prolonged_by"]:.0f} %".'
        )
    return lines + artefact.closing_notes


def show_table1(artefact: Artefact) -> Exhibit:
    return {"": table1(artefact)}


def _delay(artefact: Artefact) -> str:
    delays = [delay for run in artefact.runs if (delay := run.config["scenario"]["pull_delay"]) is not None]
    if not delays:
        return "no delays"
    return f"{100 * delays[0]['probability']:g} % of the pull responses {delays[0]['source']['value']:g} s late"


PAPER = Paper("psp", {"table1": show_table1}, ())
