"""Backup workers: tables, figures and claims from runs made here."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pytest
from written import RunInMemory, artefact_of, made_run, verdict_on

from reports.backup import PAPER
from reports.backup.learning import fig1, fig1_table, fig3, fig3_table, table1
from reports.backup.rates import charlm, charlm_table, draw, draw_table
from reports.backup.times import fig2, fig2_table
from reports.claims import FAILS, HOLDS, NOT_COMPARABLE, UNDECIDED, Verdict
from reports.records import Artefact
from runners.planning import experiment_plan

SEEDS = (0, 1, 2)
judged = partial(verdict_on, PAPER)
TARGETS = {"table1": 0.965, "fig1": 0.965, "fig3": 0.965, "draw": 157.0}  # accuracies, and nats of DRAW


def made(name: str, runs: Sequence[RunInMemory], has_target: bool = True) -> Artefact:
    report = {"targets": {"laptop": TARGETS[name]}} if has_target and name in TARGETS else {}
    return artefact_of(f"backup/{name}", runs, report)


# Learning: a run ends at an accuracy after 8 epochs, on a straight line from 0 up to an epoch, then flat.

Ends = Mapping[str, tuple[float, float]]  # label -> accuracy in %, epoch at which it is there
ENDS: Ends = {
    "async/25": (99.0, 1.0),
    "async/50": (98.5, 1.0),
    "async/100": (98.0, 1.1),
    "async/200": (97.0, 1.2),
    "sync/50": (99.2, 0.8),
    "sync/100": (99.1, 0.9),
    "sync/200": (98.0, 2.0),
    "sync/50/mean": (50.0, 8.0),
    "sync/50/mean_scaled": (99.0, 0.8),
    "backup/50": (99.3, 0.6),
    "backup/100": (99.1, 0.8),
    "backup/200": (98.2, 1.0),
}


def learned(ends: Ends, diverged: Sequence[str] = ()) -> list[RunInMemory]:
    """Seeds differ by 0.02 points; a worker takes 4 s a gradient, and a synchronous step 5."""
    runs = []
    for label, (end, ready) in ends.items():
        kind, workers, *_ = label.split("/")
        number = int(workers)
        epoch_s = {"async": 4.0, "sync": 5.0, "backup": 4.5}[kind] * 1000 / number  # of 1,000 gradients
        config = {
            "strategy": {"name": "asp" if kind == "async" else "backup"},
            "cluster": {"workers": number},
            "optimizer": {"lr": 0.25 if label.endswith("scaled") else 0.005},
        }
        for seed in SEEDS:
            own = (end + 0.02 * seed) / 100
            rows = [
                {"epoch": epoch, "time_s": epoch * epoch_s, "accuracy": own * min(epoch / ready, 1.0)}
                for epoch in (0.0, ready / 2, ready, 8.0)
            ]
            summary = {
                "status": "diverged" if label in diverged else "finished",
                "final": {"accuracy": own},
                "time_s": 8 * epoch_s,
                "updates": 8000 if kind == "async" else 8000 // number,
                "gradients_used": 8000,
                "mean_staleness": number - 1.0 if kind == "async" else 0.0,
            }
            runs.append(made_run(label, seed, config, summary, rows))
    return runs


def alone(staleness: Callable[[int], float] = lambda workers: workers - 1.01) -> list[RunInMemory]:
    """Table 1's times alone: 100 gradients in which 25 workers need 16 s."""
    runs = []
    for workers in (25, 50, 100, 200):
        config = {"strategy": {"name": "asp"}, "cluster": {"workers": workers}, "optimizer": {"lr": 0.045}}
        for seed in SEEDS:
            summary = {
                "final": None,
                "time_s": 400.0 / workers,
                "updates": 100,
                "gradients_used": 100,
                "mean_staleness": staleness(workers) + 0.001 * seed,
            }
            runs.append(made_run(f"async/{workers}/timing", seed, config, summary))
    return runs


def only(ends: Ends, *kinds: str) -> Ends:
    return {label: end for label, end in ends.items() if label.startswith(kinds)}


def made_table1(ends: Ends = ENDS, diverged: Sequence[str] = ()) -> Artefact:
    return made("table1", learned(only(ends, "async"), diverged) + alone())


def made_fig1(ends: Ends = ENDS) -> Artefact:
    return made("fig1", learned(only(ends, "async", "sync")))


def made_fig3(ends: Ends = ENDS, has_target: bool = True) -> Artefact:
    return made("fig3", learned(ends), has_target)


def on_all(key: str, ends: Ends = ENDS) -> Verdict:
    """Of a claim about learning."""
    return judged(key, made_table1(ends), made_fig1(ends), made_fig3(ends))


# Convergence.


def test_a_run_that_never_reaches_the_level_is_counted() -> None:
    row = table1(made_table1({**ENDS, "async/200": (90.0, 1.0)})).texts()[-1]
    assert row[9:11] == ["— (0/3)", "— (0/3)"]


def test_a_run_that_diverged_is_named_and_has_no_accuracy_at_the_end() -> None:
    assert "No run diverged." in table1(made_table1()).notes
    table = table1(made_table1({**ENDS, "async/200": (11.0, 1.0)}, ["async/200"]))
    assert table.texts()[-1][2] == "— (0/3)"
    assert any("async/200 seed 0, async/200 seed 1, async/200 seed 2" in note for note in table.notes)


def test_figure_1s_table_has_the_readings() -> None:
    rows = {row[0]: row[1:] for row in fig1_table(made_fig1()).texts()}
    assert rows["async 50"] == ["0.005", "98.52 ± 0.02", "—", "0.98 ± 0.00", "8,000 ± 0"]
    assert rows["sync 50"] == ["0.005", "99.22 ± 0.02", "0.70 ± 0.00", "0.78 ± 0.00", "160 ± 0"]
    assert rows["sync 50, mean at the same rate"][1:4] == ["50.02 ± 0.02", "-48.50 ± 0.00", "— (0/3)"]
    assert rows["sync 50, mean at 50 times the rate"][0] == "0.25"


def test_figure_1_draws_both_strategies_and_the_published_accuracies() -> None:
    left, right = fig1(made_fig1()).panels
    assert [(series.label, list(series.x)) for series in left.series] == [
        ("async", [25, 50, 100, 200]),
        ("sync", [50, 100, 200]),
        ("async, paper", [25, 50, 100, 200]),
    ]
    assert left.series[1].y == pytest.approx([99.22, 99.12, 98.02])
    assert (left.series[2].published, list(left.series[2].y)) == (True, [78.94, 78.83, 78.44, 78.04])
    assert [series.label for series in right.series] == ["async", "sync"]
    assert right.series[0].y[0] == pytest.approx(0.965 / 0.9902)


def test_figure_3_is_accuracy_against_virtual_time_for_each_number_of_workers() -> None:
    figure = fig3(made_fig3())
    assert [panel.title for panel in figure.panels] == ["50 workers", "100 workers", "200 workers"]
    assert [series.label for series in figure.panels[0].series] == ["async", "sync", "sync, backups"]
    assert {panel.x_label for panel in figure.panels} == {"virtual time, s"}
    asynchronous = figure.panels[0].series[0]
    assert (asynchronous.x[-1], asynchronous.y[-1]) == (640.0, pytest.approx(98.52))
    assert asynchronous.low is not None
    assert asynchronous.low[-1] == pytest.approx(98.5)


def test_figure_3s_table_sets_times_and_accuracies_against_async() -> None:
    rows = {row[0]: row[1:] for row in fig3_table(made_fig3()).texts()}
    # level 96.5: backups 0.6 x 96.5 / 99.3 epochs of 90 s; async 96.5 / 98.5 epochs of 80 s
    assert rows["sync, backups 50"] == ["52 ± 0", "0.75", "0.67 ± 0.00", "0.48", "0.80 ± 0.00"]
    assert rows["async 50"][2:] == ["1.00 ± 0.00", "—", "0.00 ± 0.00"]
    assert rows["sync, backups 100"][1] == "—"


# Step times.

STEPS = {"async": 4.0, "sync": 5.0, "backup": 4.2, "backup5": 4.1, "restart": 4.0}


def timed(steps: Mapping[str, float], rare: Mapping[str, float] = STEPS) -> list[RunInMemory]:
    runs = []
    of_three = {kind: seconds for kind, seconds in steps.items() if kind in ("async", "sync", "backup")}
    for tail, of in (("slow1", of_three), ("slow2", of_three), ("pareto", STEPS), ("rare", rare)):
        for kind, seconds in of.items():
            for number in (50, 100, 200):
                label = f"{tail}/{kind}/{number}"
                config = {"strategy": {"name": "asp" if kind == "async" else "bsp"}, "cluster": {"workers": number}}
                updates = 100 * (number if kind == "async" else 1)
                for seed in SEEDS:
                    summary = {"time_s": 100 * (seconds + 0.01 * seed), "updates": updates, "gradients_used": updates}
                    runs.append(made_run(label, seed, config, summary))
    return runs


def test_figure_2_gives_a_workers_step_and_what_it_is_of_asyncs() -> None:
    artefact = made("fig2", timed(STEPS))
    rows = {row[0]: row[1:] for row in fig2_table(artefact).texts()}
    assert len(rows) == 2 * 9 + 2 * 15
    assert rows["pareto, async 200"] == ["4.01 ± 0.01", "1", "1.000 ± 0.000"]
    assert rows["slow2, sync 50"] == rows["pareto, sync 50"] == ["5.01 ± 0.01", "1.2 to 1.4", "1.249 ± 0.001"]
    assert rows["rare, sync, backups 100"][2] == "1.050 ± 0.000"
    assert rows["rare, sync, 5 % backups 100"][1:] == ["—", "1.025 ± 0.000"]
    panels = fig2(artefact).panels
    assert [len(panel.series) for panel in panels] == [3, 3, 5, 5]
    assert panels[0].categories == ["50 workers", "100 workers", "200 workers"]
    assert panels[0].series[1].y == pytest.approx([5.01] * 3)


# Rates.


def modelled(
    exploding: Mapping[str, Sequence[float]], diverged: Mapping[str, Sequence[float]], seeds: Sequence[int] = SEEDS
) -> list[RunInMemory]:
    """async and sync at four rates; bits fall with the rate until the loss explodes."""
    runs = []
    for kind in ("async", "sync"):
        for position, rate in enumerate((0.1, 1.0, 3.2, 32.0)):
            is_bad = rate in exploding[kind]
            config = {"cluster": {"workers": 32}, "optimizer": {"lr": rate}}
            for seed in seeds:
                status = "diverged" if rate in diverged[kind] else "finished"
                rows: list[dict[str, float | None]] = [
                    {"epoch": 0.0, "loss": 5.0, "train_loss": None},
                    {"epoch": 0.5, "loss": 4.0, "train_loss": 10.0 if is_bad else 4.5},
                    {"epoch": 1.0, "loss": 3.0, "train_loss": 3.5},
                ]
                bits = 9.0 if is_bad else 5.0 - position + 0.1 * seed
                for row, value in zip(rows, (8.0, 6.0, bits), strict=True):
                    row["bits_per_character"] = value
                summary = {"metric": "bits_per_character", "status": status, "final": {"bits_per_character": bits}}
                runs.append(made_run(f"{kind}/rate{position}", seed, config, summary, rows))
    return runs


NEVER: Mapping[str, Sequence[float]] = {"async": (), "sync": ()}


def test_the_character_models_table_shows_both_readings_of_sync() -> None:
    runs = modelled({"async": (3.2,), "sync": (32.0,)}, {"async": (32.0,), "sync": ()})
    table = charlm_table(made("charlm", runs))
    assert table.texts() == [
        ["0.1", "0 of 3", "5.10 ± 0.10", "0 of 3", "5.10 ± 0.10", "0 of 3", "3.10 ± 0.10"],  # the sum is sync's 3.2
        ["1", "0 of 3", "4.10 ± 0.10", "0 of 3", "4.10 ± 0.10", "3 of 3", "9.00 ± 0.00"],
        ["3.2", "3 of 3", "9.00 ± 0.00", "0 of 3", "3.10 ± 0.10", "—", "—"],
        ["32", "3 of 3", "— (0/3)", "3 of 3", "9.00 ± 0.00", "—", "—"],
    ]
    assert any("Sync's best rate is 3.2; no seed explodes at 0.1, 1, 3.2" in note for note in table.notes)
    only = (
        "of 3 seeds {} have a rate at which async explodes and sync does not, {} one at which sync explodes and async"
    )
    assert any(f"averaged: {only.format(3, 0)}" in note for note in table.notes)
    assert any(f"summed: {only.format(0, 3)}" in note for note in table.notes)


def test_the_character_models_figure_shows_the_end_and_the_worst_moment() -> None:
    runs = modelled({"async": (3.2,), "sync": ()}, {"async": (32.0,), "sync": ()})
    end, worst = charlm(made("charlm", runs)).panels
    assert [(series.label, list(series.x)) for series in end.series] == [
        ("async", [0.1, 1.0, 3.2]),
        ("sync", [0.1, 1.0, 3.2, 32.0]),
    ]
    assert worst.series[0].y == pytest.approx([0.9, 0.9, 2.0])
    assert worst.series[2].label == "as at the start"


Bounds = Mapping[
    str, Mapping[float, tuple[float, float]]
]  # strategy -> rate -> lowest bound, epoch at which it is there
BOUNDS: Bounds = {
    "single": {0.003: (150.0, 4.0), 0.01: (160.0, 4.0)},
    "async": {0.003: (155.0, 3.0), 0.01: (300.0, 4.0)},
    "sync": {0.003: (250.0, 4.0), 0.01: (150.0, 1.8)},
}


def drawn(
    bounds: Bounds, diverged: Sequence[tuple[str, float]] = (), seeds: Sequence[int] = SEEDS
) -> list[RunInMemory]:
    """Bounds fall on a straight line from 500; an epoch of one worker takes 1,000 s, of ten 100, synchronous 120."""
    epoch_s = {"single": 1000.0, "async": 100.0, "sync": 120.0}
    runs, about = [], {"metric": "bound", "updates": 80}
    for kind, rates in bounds.items():
        for position, (rate, (bound, ready)) in enumerate(rates.items()):
            for seed in seeds:
                own = bound + seed
                rows = [
                    {
                        "epoch": epoch,
                        "time_s": epoch * epoch_s[kind],
                        "bound": 500 + (own - 500) * min(epoch / ready, 1),
                    }
                    for epoch in sorted({0.0, ready, 4.0})
                ]
                status = "diverged" if (kind, rate) in diverged else "finished"
                config = {"optimizer": {"lr": rate}}
                runs.append(made_run(f"{kind}/rate{position}", seed, config, about | {"status": status}, rows))
    return runs


def test_draws_table_marks_best_rates_and_gives_the_way_to_the_level() -> None:
    table = draw_table(made("draw", drawn(BOUNDS)))
    assert any("Level: 157 nats, fixed beforehand." in note for note in table.notes)
    rows = {row[0]: row[1:] for row in table.texts()}
    assert [name for name in rows if name.endswith("its best")] == [
        "one worker, rate 0.003, its best",
        "async, rate 0.003, its best",
        "sync, rate 0.01, its best",
    ]
    assert rows["async, rate 0.003, its best"][:3] == ["156.0 ± 1.0", "2.99 ± 0.01", "299 ± 1"]
    # 343 of 349 nats: 1.8 x 0.983 epochs
    assert rows["sync, rate 0.01, its best"][1:3] == ["1.77 ± 0.01", "212 ± 1"]
    assert rows["sync, rate 0.003"][1] == "— (0/3)"


def test_draw_is_judged_at_the_rates_that_tuning_chose() -> None:
    rivals = {"targets": {"laptop": 260.0}, "rivals": {"laptop": {"sync": "rate0"}}}
    artefact = artefact_of("backup/draw", drawn(BOUNDS), rivals)
    rows = [row[0] for row in draw_table(artefact).texts()]
    assert [name for name in rows if name.endswith("its best")][-1] == "sync, rate 0.003, its best"
    work = judged("draw_speed", artefact).effects[-1]
    assert work.estimate == pytest.approx((240 / 249) * 4.0 / ((240 / 344) * 3.0), rel=0.01), "at rate 0.003"


def test_draws_figure_shows_each_at_its_best_rate_against_time_and_work() -> None:
    time, work = draw(made("draw", drawn(BOUNDS))).panels
    names = ["one worker, rate 0.003", "async, rate 0.003", "sync, rate 0.01"]
    assert [series.label for series in time.series] == [series.label for series in work.series] == names
    assert [series.x[-1] for series in time.series] == [4000.0, 400.0, 480.0]
    assert (time.x_label, work.x_label) == ("virtual time, s", "epochs")


def test_a_rate_at_which_a_seed_diverged_is_never_the_best() -> None:
    rows = [row[0] for row in draw_table(made("draw", drawn(BOUNDS, [("async", 0.003)]))).texts()]
    assert "async, rate 0.01, its best" in rows


# Claims: each on records on which it holds, and on some on which it fails.


@pytest.mark.parametrize(
    ("key", "moved", "verdict"),
    [
        ("async_accuracy_falls", {"async/50": (98.4, 1.0)}, FAILS),  # more than "only" from 25 to 50
        ("async_accuracy_falls", {"async/200": (98.5, 1.2)}, FAILS),
        ("async_accuracy_falls", {"async/100": (98.6, 1.1)}, HOLDS),  # the loss after 50 is that to 200 workers
        ("async_scales", {"async/100": (98.0, 1.6)}, FAILS),  # 2 x 1.0 / 1.6
        ("async_scales", {"async/200": (90.0, 1.0)}, NOT_COMPARABLE),  # never reaches the level
        ("sync_accuracy", {"sync/50": (98.6, 0.8)}, FAILS),
        ("sync_accuracy", {"sync/100": (98.1, 0.8)}, FAILS),
        ("sync_accuracy", {"async/50": (90.0, 1.0)}, HOLDS),  # however much more it is
        ("sync_fewer_epochs", {"sync/50": (99.2, 1.2)}, FAILS),
        ("sync_fewer_epochs", {"sync/100": (90.0, 0.5)}, NOT_COMPARABLE),
        ("sync_scales", {"sync/100": (98.5, 0.9)}, FAILS),
        ("sync_scales", {"async/100": (98.45, 1.1)}, FAILS),  # async loses less
        ("backup_time", {"backup/50": (99.3, 0.8)}, FAILS),  # 0.8 x 90 / 80
        ("backup_time", {"backup/50": (99.3, 0.3)}, HOLDS),  # far more than a quarter less
        ("backup_time", {"backup/50": (98.6, 0.6)}, FAILS),
    ],
)
def test_claims_of_learning_hold_and_fail(key: str, moved: dict[str, tuple[float, float]], verdict: str) -> None:
    assert on_all(key).verdict == HOLDS
    assert on_all(key, {**ENDS, **moved}).verdict == verdict


def test_the_notes_tell_whose_level_times_are_to() -> None:
    assert any("first crossing of 96.50 %, which is fixed" in note for note in fig3_table(made_fig3()).notes)
    without = fig3_table(made_fig3(has_target=False))
    assert "Converged: no level is fixed at this scale." in without.notes
    assert {row[1] for row in without.texts()} == {"— (0/3)"}


def test_staleness_must_be_n_less_1_within_5_per_cent() -> None:
    assert judged("async_staleness", made_table1()).verdict == HOLDS
    fresher = learned(only(ENDS, "async")) + alone(lambda workers: 0.9 * (workers - 1))
    verdict = judged("async_staleness", made("table1", fresher))
    assert (verdict.verdict, [number.verdict for number in verdict.numbers]) == (FAILS, [FAILS] * 4)


@pytest.mark.parametrize(
    ("key", "kind", "seconds", "verdict"),
    [
        ("sync_step_time", "sync", 4.8, HOLDS),
        ("sync_step_time", "sync", 4.4, FAILS),
        ("sync_step_time", "sync", 6.0, FAILS),
        ("backup_step_time", "backup", 4.3, HOLDS),
        ("backup_step_time", "backup", 4.5, FAILS),
    ],
)
def test_claims_of_step_times_hold_and_fail_by_the_slow_workers_of_the_text(
    key: str, kind: str, seconds: float, verdict: str
) -> None:
    assert judged(key, made("fig2", timed({**STEPS, kind: seconds}))).verdict == verdict


@pytest.mark.parametrize(
    ("exploding", "diverged", "verdict"),
    [
        ({"async": (3.2, 32.0), "sync": (32.0,)}, NEVER, HOLDS),
        (NEVER, {"async": (32.0,), "sync": ()}, HOLDS),
        (NEVER, NEVER, FAILS),
        ({"async": (32.0,), "sync": (32.0,)}, NEVER, FAILS),
        ({"async": (3.2,), "sync": (32.0,)}, NEVER, FAILS),  # each has a rate of its own
    ],
)
def test_sync_must_be_stable_where_async_explodes(
    exploding: Mapping[str, Sequence[float]], diverged: Mapping[str, Sequence[float]], verdict: str
) -> None:
    """Of six seeds: the exact test needs five to hold (0.5^5 < 0.05) and, of two numbers, six to fail."""
    for num_seeds, expected in ((6, verdict), (4, UNDECIDED)):
        assert judged("lm_lr", made("charlm", modelled(exploding, diverged, range(num_seeds)))).verdict == expected


@pytest.mark.parametrize(
    ("changed", "diverged"),
    [
        ({"async": {0.003: (155.0, 45.0), 0.01: (300.0, 4.0)}}, [("async", 0.01)]),  # slower than one worker
        ({"sync": {0.003: (250.0, 4.0), 0.01: (150.0, 3.9)}}, [("async", 0.01)]),  # no faster with as much work
        ({}, []),  # async is as stable
        ({"sync": {0.003: (150.0, 1.8), 0.01: (250.0, 4.0)}}, [("async", 0.01), ("sync", 0.01)]),
    ],
)
def test_draws_speed_must_be_all_that_is_claimed(changed: Bounds, diverged: Sequence[tuple[str, float]]) -> None:
    seeds = range(8)
    assert judged("draw_speed", made("draw", drawn(BOUNDS, [("async", 0.01)], seeds))).verdict == HOLDS
    assert judged("draw_speed", made("draw", drawn({**BOUNDS, **changed}, diverged, seeds))).verdict == FAILS


def test_asyncs_times_alone_are_runs_of_table_1_and_of_figure_2() -> None:
    beside, alone_ = (
        {entry.label: entry.config.identity for entry in experiment_plan(words, with_sweeps=False)[0].entries}
        for words in (
            [f"+experiment=backup/{name}", "scale=laptop", "scale.seeds=[0]", "results=elsewhere"]
            for name in ("table1", "fig2")
        )
    )
    for workers in (50, 100, 200):
        assert beside[f"async/{workers}/timing"] == alone_[f"pareto/async/{workers}"]
