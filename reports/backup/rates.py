"""Section 5: a character language model and DRAW, by strategy and learning rate."""

import math
from collections.abc import Callable, Mapping, Sequence

from reports.backup.runs import ASYNC, SYNC, name_of
from reports.figures import Figure, Panel, Series, curve, points
from reports.learned import unlearned
from reports.measures import CROSSING, Measure, Target, final, finite, fixed_target, in_summary
from reports.records import Artefact, Run, published
from reports.statistics import Sample
from reports.tables import Column, Measured, Table

SINGLE = "single"
Rates = Mapping[str, Mapping[float, list[Run]]]  # strategy -> learning rate, ascending -> its runs, one a seed


def by_rate(artefact: Artefact) -> Rates:
    found: dict[str, dict[float, list[Run]]] = {}
    for (kind, _), runs in artefact.by("strategy", "rate").items():
        found.setdefault(kind, {})[runs[0].config["optimizer"]["lr"]] = runs
    return {kind: dict(sorted(rates.items())) for kind, rates in found.items()}


# The language model.


def worst_loss(run: Run) -> float:
    """The highest loss after the start over the loss at the start, of test set or mini-batches; inf if it diverged."""
    start, *later = run.metrics
    seen = [row[key] for row in later for key in ("loss", "train_loss") if row[key] is not None]
    is_lost = run.is_diverged or not all(map(math.isfinite, seen))
    return float(math.inf if is_lost else max(seen) / start["loss"])


def explodes(run: Run) -> bool:
    """Whether it diverged, or its loss ever rose above the start's."""
    return worst_loss(run) > 1.0


def summed(artefact: Artefact) -> dict[float, list[Run]]:
    """Rate -> sync's runs if it summed gradients: with plain SGD those of the mean at as many times the rate."""
    of, workers = by_rate(artefact), artefact.runs[0].num_workers
    return {rate: runs for rate in of[ASYNC] for own, runs in of[SYNC].items() if math.isclose(own, workers * rate)}


def unstable_alone(
    artefact: Artefact, sync: Mapping[float, Sequence[Run]], is_unstable: Callable[[Run], bool] = explodes
) -> tuple[Sample, Sample]:
    """1 for a seed with a rate at which async is unstable and sync is not, else 0; and the other way round.

    Flawed where async has learned nothing at its smallest rate: what learns nothing may be stable.

    Args:
        sync: rate -> its runs, which may be another reading of the rate.
    """
    asynchronous = by_rate(artefact)[ASYNC]
    pairs = [
        (artefact.sample(asynchronous[rate], is_unstable), artefact.sample(sync[rate], is_unstable))
        for rate in sync
        if rate in asynchronous
    ]

    def there_is(exploding: int) -> Sample:
        sides = [(pair[exploding].values, pair[1 - exploding].values) for pair in pairs]
        hits = [[found == (True, False) for found in zip(*side, strict=True)] for side in sides]
        flaw = unlearned(next(iter(asynchronous.values())))
        return Sample(tuple(float(any(of_seed)) for of_seed in zip(*hits, strict=True)), flaw)

    return there_is(0), there_is(1)


final_bits = final("bits_per_character")


def charlm_table(artefact: Artefact) -> Table:
    """A row a rate: async, sync, and sync if gradients were summed."""
    of, workers = by_rate(artefact), artefact.runs[0].num_workers
    columns: list[Column[float]] = [
        Column("rate", lambda rate: f"{rate:g}"),
        *_sides(artefact, "async", of[ASYNC]),
        *_sides(artefact, "sync", of[SYNC]),
        *_sides(artefact, "sync, summed", summed(artefact)),
    ]
    best = best_rate(of[SYNC], artefact, final_bits)
    stable = [rate for rate, runs in of[SYNC].items() if not any(map(explodes, runs))]
    about = {"best": best, "stable": ", ".join(f"{rate:g}" for rate in stable) or "any rate", "workers": workers}
    paper = published("backup")
    *own, perplexity = (note.format(**about, larger=paper["larger_rate"]) for note in paper["notes"]["charlm"])
    notes = [*own, *_stable_alone(artefact), perplexity]
    return Table.of_artefact(artefact, "Backup workers, character model", of[ASYNC], columns, notes)


def _stable_alone(artefact: Artefact) -> list[str]:
    """The claim in both readings: a line each."""
    lines = []
    for reading, sync in (("averaged", by_rate(artefact)[SYNC]), ("summed", summed(artefact))):
        if sync:
            only_async, only_sync = (sum(hits.present) for hits in unstable_alone(artefact, sync))
            seeds = len(artefact.seeds)
            note: str = published("backup")["notes"]["stable"]
            lines.append(note.format(reading=reading, seeds=seeds, only_async=only_async, only_sync=only_sync))
    return lines


def _sides(artefact: Artefact, name: str, runs_at: Mapping[float, list[Run]]) -> list[Column[float]]:
    def exploded(rate: float) -> str | None:
        runs = runs_at.get(rate)
        return None if runs is None else f"{sum(map(explodes, runs))} of {len(runs)}"

    def bits(rate: float) -> Sample | None:
        return artefact.sample(runs_at[rate], final_bits) if rate in runs_at else None

    return [Column(f"{name}: exploded", exploded), Column(f"{name}: bits a character", bits, 2, show_n=True)]


def charlm(artefact: Artefact) -> Figure:
    """Left the end, right the worst moment, by learning rate."""
    of = by_rate(artefact)

    def drawn(value: Mapping[str, Mapping[float, Sample]]) -> list[Series]:
        return [points(name_of(kind), samples, position) for position, (kind, samples) in enumerate(value.items())]

    ends = {kind: artefact.samples(final_bits, rates) for kind, rates in of.items()}
    worst = {kind: artefact.samples(lambda run: finite(worst_loss(run)), rates) for kind, rates in of.items()}
    every = list(of[ASYNC])
    start = Series("as at the start", [every[0], every[-1]], [1.0, 1.0], colour=6, style=":")
    panels = [
        Panel("learning rate", label, series, title, log_x=True, log_y=True)
        for label, series, title in (
            ("bits a character", drawn(ends), "at the end"),
            ("highest loss / loss at the start", [*drawn(worst), start], "worst moment; diverged runs have none"),
        )
    ]
    title = f"Backup workers, character model, at scale {artefact.scale}, {len(artefact.seeds)} seeds: mean ± deviation"
    return Figure(title, panels)


# DRAW.


def lowest(run: Run) -> float | None:
    """The lowest bound of its evaluations, nats; None of a run that diverged."""
    return None if run.is_diverged else finite(min(row["bound"] for row in run.metrics))


def best_rate(rates: Mapping[float, list[Run]], artefact: Artefact, value: Measure) -> float:
    """The rate with the lowest mean over all seeds, of the rates at which every seed has a value.

    Raises:
        LookupError: no rate is left.
    """
    samples = artefact.samples(value, rates).items()
    means: dict[float, float] = {rate: own.mean for rate, own in samples if own.n == len(own.values)}
    if not means:
        raise LookupError("no rate at which no seed diverged")
    return min(means, key=means.__getitem__)


def best_runs(artefact: Artefact) -> dict[str, list[Run]]:
    """Strategy -> its runs at the rate that tuning chose (`rivals`: `sync: rate2`), else at its best of these runs.

    Raises:
        LookupError: a strategy has none.
    """
    found = {}
    for kind, by in by_rate(artefact).items():
        named = artefact.by("rate", strategy=kind)
        chosen = artefact.rivals(kind, list(named))
        found[kind] = named[chosen[0]] if len(chosen) == 1 else by[best_rate(by, artefact, lowest)]
    return found


def draw_target(artefact: Artefact, over: str) -> Target:
    """When the bound first crosses the level, over `epoch` or `time_s`."""
    return fixed_target(artefact, lambda run: run.curve("bound", over), falling=True, at=CROSSING)


def draw_table(artefact: Artefact) -> Table:
    """A row a strategy and rate."""
    best = {runs[0].label for runs in best_runs(artefact).values()}
    rows = {
        f"{name_of(kind)}, rate {rate:g}{', its best' if runs[0].label in best else ''}": runs
        for kind, rates in by_rate(artefact).items()
        for rate, runs in rates.items()
    }
    ours = Measured(artefact, rows)
    columns: list[Column[str]] = [
        Column("strategy, rate", str),
        ours.column("lowest bound, nats an image", lowest, show_n=True),
        ours.column("epochs to the level", draw_target(artefact, "epoch").time, 2, show_n=True),
        ours.column("virtual s to the level", draw_target(artefact, "time_s").time, 0, show_n=True),
        ours.column("updates", in_summary("updates"), 0),
    ]
    level = artefact.target()
    about = "none is fixed at this scale." if level is None else f"{level:g} nats, fixed beforehand."
    notes = [note.format(level=about) for note in published("backup")["notes"]["draw"]]
    return Table.of_artefact(artefact, "Backup workers, DRAW", rows, columns, notes)


def draw(artefact: Artefact) -> Figure:
    """The bound against virtual time and against epochs, each strategy at its best rate."""
    best = best_runs(artefact)

    def drawn(over: str) -> list[Series]:
        names = [f"{name_of(kind)}, rate {runs[0].config['optimizer']['lr']:g}" for kind, runs in best.items()]
        curves = [[run.curve("bound", over) for run in runs] for runs in best.values()]
        return [curve(name, own, position) for position, (name, own) in enumerate(zip(names, curves, strict=True))]

    label = "bound, nats an image"
    panels = [
        Panel("virtual time, s", label, drawn("time_s"), title="against time", log_y=True),
        Panel("epochs", label, drawn("epoch"), title="against work", log_y=True),
    ]
    return Figure(f"Backup workers, DRAW, at scale {artefact.scale}, {len(artefact.seeds)} seeds", panels)
