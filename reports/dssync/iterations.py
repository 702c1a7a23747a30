"""Figures 3 and 4: how long an iteration takes, and how many times as fast as BSP's it is."""

from collections.abc import Mapping

from reports.dssync.cost import Wire
from reports.dssync.text import published_speedup, published_step_s, strategy_name, task_name, text
from reports.figures import Figure, Panel, Series, points
from reports.records import Artefact, Run
from reports.statistics import Sample, ratio
from reports.tables import Column, Table
from syncline.timing import collectives

NO_SERVER = ("bsp", "ds_sync")  # strategies here whose update is a step of all workers
SPEEDUPS = {  # name -> (slower, faster), as the runs are labelled
    "a message a tensor": ("bsp_naive", "ds_sync_naive"),
    "a message a tensor and a buffer of batch norm": ("bsp_naive_buffers", "ds_sync_naive_buffers"),
    "one message": ("bsp", "ds_sync"),
    "a message a tensor, against BSP with one": ("bsp", "ds_sync_naive"),
    "a message a tensor, uneven workers": ("bsp_naive_uneven", "ds_sync_naive_uneven"),
    "ASP, one server, against BSP's message a tensor, uneven": ("bsp_naive_uneven", "asp_uneven"),
}
LEGEND = (  # of SPEEDUPS
    *("DS-Sync", "DS-Sync, buffers too", "DS-Sync, one message", "DS-Sync / BSP in one", "DS-Sync, uneven"),
    "ASP, uneven",
)


def seconds_an_iteration(run: Run) -> float:
    """Virtual seconds in which every worker makes one gradient, on average."""
    gradients_an_update = run.num_workers if run.config["strategy"]["name"] not in NO_SERVER else 1
    return run.time_s * gradients_an_update / run.number("updates")


def seconds_by_task(artefact: Artefact) -> dict[str, dict[str, Sample]]:
    """Task -> run -> seconds an iteration."""
    rows = {task: artefact.by("strategy", task=task) for task in artefact.by("task")}
    return {task: artefact.samples(seconds_an_iteration, of_task) for task, of_task in rows.items()}


def speedup(times: Mapping[str, Sample], kind: str) -> Sample | None:
    """One of SPEEDUPS, seed by seed; None where one of the two was not run."""
    slower, faster = (times.get(name) for name in SPEEDUPS[kind])
    return ratio(slower, faster)


def wires(artefact: Artefact) -> dict[str, Wire]:
    """By task, without messages for buffers."""
    return {
        task: Wire.of(runs[0].config)
        for (task, run), runs in artefact.by("task", "strategy").items()
        if not run.endswith("_buffers")
    }


def speedups(artefact: Artefact) -> Table:
    """How many times as fast an iteration is: by the paper's times and cost model, the alpha-beta model, simulated."""
    times, of = seconds_by_task(artefact), wires(artefact)
    first, *others = SPEEDUPS

    def ours(kind: str) -> Column[str]:
        return Column(f"ours: {kind}", lambda task: speedup(times[task], kind), 2)

    columns: list[Column[str]] = [
        Column("BSP's seconds / DS-Sync's", lambda task: f"{task_name(task)}, {text()['tasks'][task]['network']}"),
        Column("million parameters", lambda task: of[task].size_bytes / 4e6),
        Column("paper: Table 4", lambda task: published_speedup(task, of[task].num_workers), 2),
        Column("paper's cost model", lambda task: _by_the_papers_model(of[task]), 2),
        Column("alpha-beta: a message a tensor", lambda task: _by_alpha_beta(of[task], of[task].tensors), 2),
        ours(first),
        Column("alpha-beta: one message", lambda task: _by_alpha_beta(of[task], 1), 2),
        *map(ours, others),
    ]
    return Table.of_artefact(artefact, "DS-Sync, speed of an iteration", of, columns, text()["notes"]["iterations"])


NAMES = {
    "bsp_naive": "BSP, a message a tensor",
    "ds_sync_naive": "DS-Sync, a message a tensor",
    "bsp_naive_buffers": "BSP, and a buffer of batch norm",
    "ds_sync_naive_buffers": "DS-Sync, and a buffer of batch norm",
    "bsp": "BSP, one message",
    "ds_sync": "DS-Sync, one message",
    "bsp_naive_uneven": "BSP, uneven",
    "ds_sync_naive_uneven": "DS-Sync, uneven",
    "asp_uneven": "ASP, uneven",
}


def seconds(artefact: Artefact) -> Table:
    """Seconds an iteration, Table 4's beside ours."""
    times, of = seconds_by_task(artefact), wires(artefact)
    there = {label for own in times.values() for label in own}

    def theirs(strategy: str) -> Column[str]:
        name = f"paper: {strategy_name(strategy)}"
        return Column(name, lambda task: published_step_s(task, of[task].num_workers, strategy), 3)

    def ours(label: str) -> Column[str]:
        return Column(f"ours: {NAMES[label]}", lambda task: times[task].get(label), 3)

    columns: list[Column[str]] = [
        Column("seconds an iteration", task_name),
        Column("a gradient (fitted)", lambda task: of[task].gradient_s, 3),
        *map(theirs, NO_SERVER),
        *(ours(label) for label in NAMES if label in there),
    ]
    return Table.of_artefact(artefact, "DS-Sync, seconds an iteration", of, columns, text()["notes"]["iterations"])


def figure(artefact: Artefact, title: str) -> Figure:
    """Bars: how many times as fast as BSP's an iteration is."""
    times = seconds_by_task(artefact)
    places = {task: place for place, task in enumerate(times)}
    series = []
    for colour, kind in enumerate(SPEEDUPS):
        bars = {places[task]: sample for task in times if (sample := speedup(times[task], kind)) is not None}
        if bars:
            series.append(points(LEGEND[colour], bars, colour, "bars"))
    of = wires(artefact)
    gains = {place: published_speedup(task, of[task].num_workers) for task, place in places.items()}
    theirs = {place: gain for place, gain in gains.items() if gain is not None}
    series.append(Series("paper: Table 4", list(theirs), list(theirs.values()), "bars", published=True))
    highest = max(height for bars in series for height in bars.y)
    room = (0.0, 1.4 * highest)  # for the legend
    panel = Panel("task", "BSP's seconds / own seconds", series, categories=list(map(task_name, times)), y_range=room)
    return Figure(
        f"{title}, at scale {artefact.scale}", [panel], [*text()["notes"]["iterations"], *artefact.closing_notes]
    )


def _by_the_papers_model(of: Wire) -> float:
    whole, grouped = (
        collectives.overall_cost_s(kind, of.num_workers, of.size_bytes, of.seconds_a_byte)
        for kind in ("ring", "ds_sync_ring")
    )
    return (of.gradient_s + whole) / (of.gradient_s + grouped)


def _by_alpha_beta(of: Wire, messages: int) -> float:
    whole, grouped = (of.cost_s(kind, of.num_workers, messages) for kind in ("ring", "ds_sync"))
    return (of.gradient_s + whole) / (of.gradient_s + grouped)
