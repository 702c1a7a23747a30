"""Runs on the paper's cluster, of fixed K and of AdaSync.

Figure 8: the run time of an epoch, by both readings of what that is. Figures 9 to 11 and Appendix E: error and training
loss against time.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np

from reports.figures import Figure, Panel, Points, Series, curve, points
from reports.records import Artefact, Run, in_summary, published
from reports.statistics import Sample, Times, restricted
from reports.tables import Column, Table

SETTLED = 0.25  # the last part of a run's time: its final value is the mean over it
ADASYNC = "adasync"  # K_0 = 2; with `_K1`, `_K4` another one, with `_start` the other reading of F_0
Key = tuple[str, str, int]  # delay, variant, K
Place = tuple[str, str, str]  # delay, variant, K1 .. K8 or adasync...: the parts of a label


def places(artefact: Artefact) -> dict[Place, list[Run]]:
    """The runs by the parts of their labels."""
    found: dict[Place, list[Run]] = {}
    for label, runs in artefact.rows().items():
        delay, variant, which = label.split("/")
        found[delay, variant, which] = runs
    return found


# Figure 8.


def an_epoch_used(run: Run) -> float:
    """Seconds in which updates use as many images as there are: 50,000 / (32 K) updates."""
    return run.time_s / run.number("epochs")


def an_epoch_dealt(run: Run) -> float:
    """Seconds of as many updates as it takes P workers to go through all images once: 50,000 / (32 P), whatever K."""
    config = run.config
    images = config["dataset"]["train_size"] or 50_000
    updates: float = images / (config["batch_size"] * run.num_workers)
    return run.seconds_an_update * updates


READINGS = {"used": an_epoch_used, "dealt": an_epoch_dealt}


def times(artefact: Artefact, reading: str) -> dict[Key, Sample]:
    """Seconds an epoch of every row."""
    return {
        (delay, variant, runs[0].config["strategy"]["k"]): artefact.sample(runs, READINGS[reading])
        for (delay, variant, _), runs in places(artefact).items()
    }


def saving(found: Mapping[Key, Sample], delay: str, variant: str, k: int) -> Sample:
    """The share of fully synchronous SGD's time that it saves; KeyError if one of the two was not run."""
    largest = max(other for _, _, other in found)
    return 1.0 - found[delay, variant, k] / found[delay, variant, largest]


def fig8(artefact: Artefact) -> Figure:
    """A panel a variant and reading."""
    paper = published("adasync")
    panels = []
    for reading in READINGS:
        found = times(artefact, reading)
        for variant in ("k_sync", "k_async"):
            series = []
            for colour, delay in enumerate(dict.fromkeys(delay for delay, _, _ in found)):
                own = {k: sample for (at, of, k), sample in found.items() if (at, of) == (delay, variant)}
                drawn = points(paper["names"][delay], own, colour)
                series += [drawn, Series("", drawn.x, drawn.y, colour=colour)]
            title = f"{paper['names'][variant]}; {paper['epochs'][reading]}"
            panels.append(Panel("K", "virtual seconds an epoch", series, title, log_y=True))
    title = "AdaSync, Figure 8: run time of an epoch, at the paper's size"
    return Figure(title, panels, paper["notes"]["fig8"], columns=2)


def fig8_table(artefact: Artefact) -> Table:
    paper = published("adasync")
    used, dealt = times(artefact, "used"), times(artefact, "dealt")
    largest = max(k for _, _, k in used)

    def name(key: Key) -> str:
        delay, variant, k = key
        return f"{paper['names'][variant]}, K = {k}, {paper['names'][delay]}"

    def saved(found: Mapping[Key, Sample]) -> Callable[[Key], Sample | None]:
        """Per cent; None where the largest K was not run."""
        return lambda key: 100.0 * saving(found, *key) if (*key[:2], largest) in found else None

    columns: list[Column[Key]] = [
        Column("setting", name),
        Column("s an epoch of images used", used.get, 2),
        Column("s an epoch of images dealt out", dealt.get, 2),
        Column("less than K = 8, %, images used", saved(used)),
        Column("less than K = 8, %, images dealt out", saved(dealt)),
    ]
    return Table.of_artefact(artefact, "AdaSync, Figure 8", used, columns, paper["notes"]["fig8"])


# Figures 9 to 11, Appendix E.


def error_curve(run: Run) -> Points:
    """(times, test errors)."""
    times, accuracies = run.curve("accuracy")
    return times, [1.0 - accuracy for accuracy in accuracies]


def loss_curve(run: Run) -> Points:
    """(times, training losses): each the mean that workers reported since the evaluation before."""
    rows = [row for row in run.metrics if row["train_loss"] is not None]
    return [row["time_s"] for row in rows], [row["train_loss"] for row in rows]


def settled(points: Points) -> float:
    """Where a curve ends: its mean over the last quarter of its time."""
    times, heights = points
    last = [height for at, height in zip(times, heights, strict=True) if at >= (1.0 - SETTLED) * times[-1]]
    return math.fsum(last) / len(last)


def final_error(run: Run) -> float | None:
    """None if it diverged, as the next two."""
    return None if run.is_diverged else settled(error_curve(run))


def final_loss(run: Run) -> float | None:
    return None if run.is_diverged else settled(loss_curve(run))


def mean_error(run: Run) -> float | None:
    """The test error's mean over the run's time: small if the error falls early and stays low."""
    if run.is_diverged:
        return None
    times, errors = error_curve(run)
    return float(np.trapezoid(errors, times)) / (times[-1] - times[0])


def time_to_loss(run: Run, goal: float) -> float | None:
    """When the training loss is first at most the goal; None if it never is."""
    return next((at for at, loss in zip(*loss_curve(run), strict=True) if loss <= goal), None)


def is_fixed(which: str) -> bool:
    """Whether K stays as it is."""
    return not which.startswith(ADASYNC)


def goals(artefact: Artefact, delay: str, variant: str) -> dict[int, float]:
    """Seed -> the given training loss: the fixed one or, for tables alone, what the largest fixed K ends at.

    Raises:
        LookupError: there is neither.
    """
    try:
        return dict.fromkeys(artefact.seeds, artefact.target(f"{delay}/{variant}"))
    except LookupError:
        fixed = {
            int(which[1:]): runs
            for (at, of, which), runs in places(artefact).items()
            if (at, of) == (delay, variant) and is_fixed(which)
        }
        if not fixed:
            raise
        return {run.seed: loss for run in fixed[max(fixed)] if (loss := final_loss(run)) is not None}


def seconds_to(artefact: Artefact, place: Place, goal: Mapping[int, float]) -> Sample:
    """When the training loss is first at most its seed's goal; None where it never is."""
    runs = [run for run in places(artefact)[place] if run.seed in goal]
    return artefact.sample(runs, lambda run: time_to_loss(run, goal[run.seed]))


def restricted_seconds(artefact: Artefact, delay: str, variant: str) -> Times[str]:
    """K1, ..., adasync, ... -> seconds to the fixed training loss, as `restricted` takes them; LookupError without."""
    goal = dict.fromkeys(artefact.seeds, artefact.target(f"{delay}/{variant}"))
    rows = {which: runs for (at, of, which), runs in places(artefact).items() if (at, of) == (delay, variant)}
    ends = {which: artefact.sample(runs, lambda run: run.time_s) for which, runs in rows.items()}
    return restricted({which: seconds_to(artefact, (delay, variant, which), goal) for which in rows}, ends)


def is_still_fixed(artefact: Artefact, place: Place, seconds: Sample) -> bool:
    """Whether half of AdaSync's runs took these seconds or less, before K could change: they were runs of a fixed K_0.

    K is first chosen by the second F, or by the first where F_0 is the loss at the start (`strategy.f0`).
    """
    options = places(artefact)[place][0].config["strategy"]
    first_choice_s: float = options["interval"] * (2 if options["f0"] == "interval" else 1)
    return 2 * sum(at <= first_choice_s for at in seconds.present) >= len(seconds.values)


def panels(artefact: Artefact, of: Callable[[Run], Points], y_label: str, log_y: bool) -> list[Panel]:
    """A panel a variant and delay; a curve a K."""
    names, found = published("adasync")["names"], places(artefact)
    colours = list(dict.fromkeys(which for _, _, which in found))  # the same in all panels, also where runs are missing
    made = []
    for delay, variant in dict.fromkeys((delay, variant) for delay, variant, _ in found):
        own = {which: runs for (at, kind, which), runs in found.items() if (at, kind) == (delay, variant)}
        series = [curve(names[key], [of(run) for run in runs], colours.index(key)) for key, runs in own.items()]
        title = f"{names[variant]}, {names[delay]}"
        made.append(Panel("virtual time, s", y_label, series, title, log_y=log_y))
    return made


def chosen(artefact: Artefact) -> list[Panel]:
    """AdaSync's K over time, a panel a variant and beginning, a curve a seed."""
    names, made = published("adasync")["names"], []
    for (_, variant, which), runs in places(artefact).items():
        if not is_fixed(which):
            series = [Series(f"seed {run.seed}", *_steps(run), colour=colour) for colour, run in enumerate(runs)]
            room = 0.0, 1.05 * runs[0].num_workers
            made.append(Panel("virtual time, s", "K", series, f"{names[which]} on {names[variant]}: K", y_range=room))
    return made


def _steps(run: Run) -> tuple[list[float], list[float]]:
    """Its K against time, as a staircase."""
    changes = run.summary["waits_for"]
    ends = [*(at for at, _, _ in changes[1:]), run.summary["time_s"]]
    corners = [(at, count) for (begin, _, count), end in zip(changes, ends, strict=True) for at in (begin, end)]
    return [at for at, _ in corners], [float(count) for _, count in corners]


def fig9_to_11(artefact: Artefact, number: str, has_k: bool = False) -> Figure:
    """The test error, a panel a variant and delay; with `has_k` also AdaSync's K over time."""
    title = f"AdaSync, {number}: mean of {len(artefact.seeds)} seeds, from the lowest to the highest"
    drawn = [*panels(artefact, error_curve, "test error", log_y=False), *(chosen(artefact) if has_k else ())]
    return Figure(title, drawn, columns=2 if has_k else 3)


def appendix_e(artefact: Artefact) -> Figure:
    title = f"AdaSync, Appendix E: training loss, {len(artefact.seeds)} seeds, from the lowest to the highest"
    return Figure(title, panels(artefact, loss_curve, "training loss, nats", log_y=True), columns=2)


def error_table(artefact: Artefact, number: str) -> Table:
    """The numbers of each curve."""
    paper, found = published("adasync"), places(artefact)

    def name(place: Place) -> str:
        delay, variant, which = place
        return f"{paper['names'][variant]}, {paper['names'][which]}, {paper['names'][delay]}"

    def ours(value: Callable[[Run], float | None]) -> Callable[[Place], Sample]:
        return lambda place: artefact.sample(found[place], value)

    def seconds_to_goal(place: Place) -> Sample | None:
        """None where there is no goal."""
        try:
            return seconds_to(artefact, place, goals(artefact, *place[:2]))
        except LookupError:
            return None

    fixed = (artefact.report.get("targets") or {}).get(artefact.scale) or {}
    goal = "fixed beforehand" if fixed else "that K = 8 ends at"
    about = [f"Fixed training losses: {', '.join(f'{loss:g} ({where})' for where, loss in fixed.items())}."]
    notes = [*paper["notes"]["learning"], *(about if fixed else [])]
    columns: list[Column[Place]] = [
        Column("setting", name),
        Column("test error, mean over the run, %", lambda place: 100.0 * ours(mean_error)(place)),
        Column("test error at the end, %", lambda place: 100.0 * ours(final_error)(place), 2),
        Column("training loss at the end", ours(final_loss), 4),
        Column(f"s to the training loss {goal}", seconds_to_goal, show_n=True),
        Column("updates", ours(in_summary("updates")), 0),
        Column("epochs", ours(in_summary("epochs"))),
        Column("mean staleness", ours(in_summary("mean_staleness")), 2),
    ]
    return Table.of_artefact(artefact, f"AdaSync, {number}", found, columns, notes, 4)


def samples(artefact: Artefact, value: Callable[[Run], float | None]) -> dict[Place, Sample]:
    """One value a seed for every curve."""
    return {place: artefact.sample(runs, value) for place, runs in places(artefact).items()}
