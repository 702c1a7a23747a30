"""Runs on the paper's cluster, of fixed K and of AdaSync.

Figure 8: the run time of an epoch, by both readings of what that is. Figures 9 to 11 and Appendix E: error and training
loss against time.
"""

from collections.abc import Callable, Mapping

from reports.figures import Figure, Panel, Points, Series, curve, points
from reports.measures import PERCENT, Target, fixed_target, in_summary, mean_over_run, of_curve, settled
from reports.records import Artefact, Run, published
from reports.statistics import Sample, Times
from reports.tables import Column, Measured, Table
from reports.targets import over_all_targets, ratios_over_targets

ADASYNC = "adasync"  # K_0 = 2; with `_K1`, `_K4` another one, with `_start` the other reading of F_0
Key = tuple[str, str, int]  # delay, variant, K
Place = tuple[str, str, str]  # delay, variant, choice: K1 .. K8 or adasync...


def places(artefact: Artefact) -> dict[Place, list[Run]]:
    """The runs by delay, variant and K, or the adaptive strategy."""
    return artefact.by("delay", "variant", "choice")


def rows(artefact: Artefact, delay: str, variant: str) -> dict[str, list[Run]]:
    """K1, ..., adasync, ... -> its runs."""
    return artefact.by("choice", delay=delay, variant=variant)


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


final_error = of_curve(lambda points: PERCENT * settled(points), error_curve)
mean_error = of_curve(lambda points: PERCENT * mean_over_run(points), error_curve)
final_loss = of_curve(settled, loss_curve)


def is_fixed(which: str) -> bool:
    """Whether K stays as it is."""
    return not which.startswith(ADASYNC)


def target(artefact: Artefact, delay: str, variant: str) -> Target:
    """The given training loss."""
    return fixed_target(artefact, loss_curve, f"{delay}/{variant}", falling=True)


def restricted_seconds(artefact: Artefact, delay: str, variant: str) -> Times[str]:
    """K1, ..., adasync, ... -> seconds to the given training loss, as `restricted` takes them; LookupError without."""
    return target(artefact, delay, variant).restricted(artefact, rows(artefact, delay, variant))


def is_still_fixed(run: Run, seconds: Sample) -> bool:
    """Whether half of AdaSync's runs took these seconds or less, before K could change: they were runs of a fixed K_0.

    K is first chosen by the second F, or by the first where F_0 is the loss at the start (`strategy.f0`).
    """
    options = run.config["strategy"]
    first_choice_s: float = options["interval"] * (2 if options["f0"] == "interval" else 1)
    return 2 * sum(at <= first_choice_s for at in seconds.present) >= len(seconds.values)


def panels(artefact: Artefact, of: Callable[[Run], Points], y_label: str, log_y: bool) -> list[Panel]:
    """A panel a variant and delay; a curve a K."""
    names, made = published("adasync")["names"], []
    colours = list(artefact.by("choice"))  # the same in all panels, also where runs are missing
    for delay, variant in artefact.by("delay", "variant"):
        own = rows(artefact, delay, variant)
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


def over_targets(artefact: Artefact) -> Figure:
    """A panel a variant: times over those of the largest fixed K to every training loss."""
    names, panels = published("adasync")["names"], []
    for delay, variant in artefact.by("delay", "variant"):
        own = rows(artefact, delay, variant)
        fixed = [which for which in own if is_fixed(which)]
        if fixed:
            others = {str(names[which]): runs for which, runs in own.items() if which != fixed[-1]}
            title = f"{names[variant]}, {names[delay]}; baseline {names[fixed[-1]]}"
            goal = target(artefact, delay, variant)
            panels.append(ratios_over_targets(artefact, others, own[fixed[-1]], goal, "training loss, nats", title))
    title = "AdaSync, Figure 11: time to a training loss over K = 8's, by the loss"
    return over_all_targets(title, panels, "the baseline", columns=2)


def name_of(artefact: Artefact) -> str:
    """As the paper calls it: "AdaSync, Figure 9" of `adasync/fig9`."""
    return artefact.name.replace("adasync/fig", "AdaSync, Figure ")


def fig9_to_11(artefact: Artefact) -> Figure:
    """The test error, a panel a variant and delay, and AdaSync's K over time."""
    adaptive = chosen(artefact)
    title = f"{name_of(artefact)}: mean of {len(artefact.seeds)} seeds, from the lowest to the highest"
    drawn = [*panels(artefact, error_curve, "test error", log_y=False), *adaptive]
    return Figure(title, drawn, columns=2 if adaptive else 3)


def appendix_e(artefact: Artefact) -> Figure:
    title = f"AdaSync, Appendix E: training loss, {len(artefact.seeds)} seeds, from the lowest to the highest"
    return Figure(title, panels(artefact, loss_curve, "training loss, nats", log_y=True), columns=2)


def error_table(artefact: Artefact) -> Table:
    """The numbers of each curve."""
    paper, found = published("adasync"), places(artefact)
    ours = Measured(artefact, found)

    def name(place: Place) -> str:
        delay, variant, which = place
        return f"{paper['names'][variant]}, {paper['names'][which]}, {paper['names'][delay]}"

    def seconds(place: Place) -> Sample:
        delay, variant, _ = place
        return artefact.sample(found[place], target(artefact, delay, variant).time)

    fixed = (artefact.report.get("targets") or {}).get(artefact.scale) or {}
    about = [f"Fixed training losses: {', '.join(f'{loss:g} ({where})' for where, loss in fixed.items())}."]
    notes = [*paper["notes"]["learning"], *(about if fixed else [])]
    to_loss = Column("s to the training loss fixed beforehand", seconds, show_n=True)
    columns: list[Column[Place]] = [
        Column("setting", name),
        ours.column("test error, mean over the run, %", mean_error),
        ours.column("test error at the end, %", final_error, 2),
        ours.column("training loss at the end", final_loss, 4),
        *([to_loss] if fixed else []),
        ours.column("updates", in_summary("updates"), 0),
        ours.column("epochs", in_summary("epochs")),
        ours.column("mean staleness", in_summary("mean_staleness"), 2),
    ]
    return Table.of_artefact(artefact, name_of(artefact), found, columns, notes)
