"""AdaSync's tables, figures and claims from runs made here, with the formulas that they are set against."""

import math
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from adasync_records import (
    KS,
    SEEDS,
    fig6_runs,
    fixed,
    made_convex,
    made_fig6,
    made_fig8,
    made_learning,
    made_times,
    noise,
    with_adasync,
)
from written import verdict_on, without, write_records

from reports.adasync import PAPER
from reports.adasync.convex import PROBLEM, fig1b, fig2, fig2_table, theoretical
from reports.adasync.learning import appendix_e, chosen, error_table, fig8, fig8_table, is_fixed
from reports.adasync.runtimes import bound, fig6, fig6_table, fig7, runtime_table
from reports.claims import FAILS, HOLDS, NOT_COMPARABLE, NOT_RUN, Verdict
from reports.figures import Figure
from reports.records import Artefact, published
from runners.commands import main
from syncline.records.store import RecordError
from syncline.timing.distributions import Exponential, Pareto, ShiftedExponential
from syncline.timing.run_times import VARIANTS, order_statistic

PROVED = ("exponential", "shifted_exponential")
SHOWN = ("pareto", "shifted_exponential")  # in Figure 7
verdict = partial(verdict_on, PAPER)


def failing(found: Verdict) -> list[str]:
    return [number.effect.what for number in found.numbers if number.verdict != HOLDS]


# Figure 6 and Theorem 1.


def test_the_ratio_is_taken_seed_by_seed_and_stands_beside_theorem_1() -> None:
    table = fig6_table(made_fig6(lambda name, workers: 1.01 if (name, workers) == ("exponential", 10) else 1.0))
    rows = {(row[0], row[1]): row[2:] for row in table.texts()}
    assert list(rows) == [("exponential", "2"), ("exponential", "10"), ("Pareto", "10"), ("Pareto", "2")]
    sync, async_, ours, theorem, percent = rows["exponential", "10"]
    assert (async_, theorem) == ("0.50000 ± 0.00000", "29.29")  # 10 H_10
    assert (sync, ours, percent) == ("14.806 ± 0.015", "29.61 ± 0.03", "1.10")
    notes = " ".join(table.notes)
    assert "exponential (mean 1), Pareto (minimum 1, shape 3, mean 1.5)" in notes
    assert "at most 1.10 % from the formula (exponential, P = 10)" in notes


def test_a_size_that_lacks_one_of_the_two_has_no_ratio() -> None:
    artefact = without(made_fig6(), "pareto/P2/async", *SEEDS)
    table = fig6_table(artefact)
    assert table.texts()[-1][3:5] == ["—", "—"]
    assert any("NOT COMPLETE" in note and "pareto/P2/async seed 0" in note for note in table.notes)
    assert fig6(artefact).panels[0].series[-1].x == [10]
    assert verdict("theorem1", artefact).verdict == NOT_RUN


def test_figure_6_draws_a_line_and_points_for_each_distribution() -> None:
    (panel,) = fig6(made_fig6()).panels
    assert [series.kind for series in panel.series] == ["line", "points"] * 2
    line, dots = panel.series[:2]
    assert (line.label, line.x[0], line.x[-1]) == ("exponential, Theorem 1", 2, 10)
    assert line.y[-1] == pytest.approx(10 * order_statistic(Exponential(1.0), 10, 10))
    assert dots.y == pytest.approx([noise(1) * 3.0, noise(1) * 10 * order_statistic(Exponential(1.0), 10, 10)])


def test_theorem_1_is_judged_at_every_size_of_the_exponential_and_at_ten_workers() -> None:
    found = verdict("theorem1", made_fig6())
    assert (found.verdict, len(found.effects)) == (HOLDS, 3)
    moved = verdict("theorem1", made_fig6(lambda name, workers: 1.03 if name == "pareto" else 1.0))
    assert (moved.verdict, failing(moved)) == (FAILS, ["sync / async over Theorem 1, Pareto, P = 10"])
    two = verdict("theorem1", made_fig6(lambda name, workers: 0.97 if workers == 2 else 1.0))
    assert failing(two) == ["sync / async over Theorem 1, exponential, P = 2"]


# Run times of the variants.


def test_a_bound_is_the_smaller_of_the_papers_two() -> None:
    """Lemma 3 and, for the shifted exponential, Lemma 4: ALGORITHMS' numbers for P = 8, shift and scale 1."""
    shifted = ShiftedExponential(1.0, 1.0)
    assert bound("k_async", shifted, 1, 8).seconds == pytest.approx((1 + order_statistic(Exponential(1.0), 8, 8)) / 8)
    assert bound("k_async", shifted, 6, 8).seconds == order_statistic(shifted, 6, 8)
    assert bound("k_async", shifted, 8, 8).claim == "equality"
    assert bound("k_async", Exponential(1.0), 3, 8).claim == "equality"
    assert bound("k_batch_sync", Pareto(1.0, 3.0), 3, 8).claim == "unproved"


def test_each_variant_stands_beside_what_is_proved_of_it() -> None:
    table = runtime_table(made_times("fig7", SHOWN), "AdaSync, Figure 7")
    rows = {row[0]: row[1:] for row in table.texts()}
    # Pareto, K = 8 of 8: K-sync and K-async are BSP; of K-batch-sync nothing is proved
    largest = order_statistic(Pareto(1.0, 3.0), 8, 8)
    exact = [f"= {largest:.4f}", f"{noise(1) * largest:.4f} ± {0.001 * largest:.4f}", "1.001 ± 0.001"]
    assert rows["K-sync, K = 8, Pareto"][1:] == rows["K-async, K = 8, Pareto"][1:] == exact
    assert rows["K-batch-async, K = 8, Pareto"][1:3] == ["= 1.5000", "1.5015 ± 0.0015"]
    assert rows["K-batch-sync, K = 8, Pareto"][1:] == ["—", "9.0090 ± 0.0090", "—"]
    lemma_4 = (1 + order_statistic(Exponential(1.0), 8, 8)) / 8
    assert rows["K-async, K = 1, shifted exponential"][1] == f"≤ {lemma_4:.4f}"
    assert rows["K-batch-sync, K = 8, shifted exponential"][1] == "≤ 9.0000"  # 8 (1 + 1 / 8)
    assert "at most 0.10 % from the formula" in " ".join(table.notes)


def test_a_mean_above_its_bound_is_named_and_one_below_is_not() -> None:
    def notes(artefact: Artefact) -> str:
        return " ".join(runtime_table(artefact, "AdaSync, Figure 7").notes)

    above = notes(made_times("fig7", SHOWN, lambda name, variant, k: 1.05))
    assert re.search(r"at most 5\.1\d % from the formula", above)
    assert "Above a proved bound: K-async, K = 1, shifted exponential; " in above
    assert "Pareto" not in above.partition("Above")[2], "nothing is proved, nothing is exceeded"
    below = made_times("fig7", ("shifted_exponential",), lambda name, variant, k: 0.9)
    assert "Above a proved bound: none." in notes(below)


def test_figure_7_has_a_panel_a_distribution_with_what_is_proved_as_lines() -> None:
    pareto, shifted = fig7(made_times("fig7", SHOWN)).panels
    assert (pareto.title, shifted.title) == ("Pareto, P = 8", "shifted exponential, P = 8")
    dots = {series.label: series for series in shifted.series if series.kind == "points"}
    assert list(dots) == ["K-sync", "K-async", "K-batch-async", "K-batch-sync"]
    assert dots["K-sync"].y == pytest.approx([noise(1) * order_statistic(ShiftedExponential(1, 1), k, 8) for k in KS])
    styles = [series.style for series in shifted.series if series.kind == "line"]
    assert styles == ["-", "-", "--", "-", "-", "--"]  # K-async is exact at K = P, K-batch-sync at K = 1
    assert [len(series.x) for series in pareto.series if series.kind == "line"] == [4, 1, 4, 1]


def test_the_table_of_run_times_has_the_papers_number_beside_ours() -> None:
    half = made_times("table_runtime", PROVED, lambda name, variant, k: 0.5 if variant == "k_async" else 1.0)
    table = runtime_table(half, "AdaSync, run times of the variants")
    rows = {row[0]: row[1:] for row in table.texts()}
    assert len(rows) == 4 * 2 * 4
    assert rows["K-sync, K = 8, exponential"] == ["E[X_{K:P}]", "= 2.7179", "2.7206 ± 0.0027", "1.001 ± 0.001"]
    assert rows["K-async, K = 1, shifted exponential"][1:] == ["≤ 0.4647", "0.2326 ± 0.0002", "0.501 ± 0.001"]
    assert rows["K-batch-async, K = 4, exponential"][1] == "= 0.5000"
    assert "at most 49.95 %" in " ".join(table.notes)


def test_theorem_2_is_a_ratio_of_variants_seed_by_seed() -> None:
    whole = made_times("table_runtime", PROVED)
    found = verdict("theorem2", whole)
    assert found.verdict == HOLDS
    assert [effect.estimate for effect in found.effects] == pytest.approx([1.0] * 8)
    slow = made_times("table_runtime", PROVED, lambda name, variant, k: 1.02 if variant == "k_batch_sync" else 1.0)
    moved = verdict("theorem2", slow)
    assert (moved.verdict, len(failing(moved))) == (FAILS, 4)
    part = without(slow, "exponential/k_batch_sync/K8", *SEEDS)
    assert verdict("theorem2", part).verdict == NOT_RUN


@pytest.mark.parametrize(("key", "variant"), [("ksync_formula", "k_sync"), ("kbatchasync_formula", "k_batch_async")])
def test_a_formula_holds_for_every_distribution_or_not(key: str, variant: str) -> None:
    table = made_times("table_runtime", PROVED)

    def found(slow: str, by: float) -> Verdict:
        """With a factor on one variant under the Pareto distribution alone."""
        fig7 = made_times("fig7", SHOWN, lambda name, own, k: by if (name, own) == ("pareto", slow) else 1.0)
        return verdict(key, table, fig7)

    whole, moved = found(variant, 1.0), found(variant, 0.98)
    assert (whole.verdict, len(whole.effects)) == (HOLDS, 12), "rows that both artefacts have count once"
    assert moved.verdict == FAILS
    assert all("Pareto" in what for what in failing(moved))
    assert found("k_async", 1.5).verdict == HOLDS, "other variants are ignored"


def test_k_async_must_be_strictly_faster_where_times_have_a_large_shift() -> None:
    def faster(name: str, variant: str, k: int) -> float:
        return 0.9 if (name, variant) == ("shifted_exponential", "k_async") and k < 8 else 1.0

    def as_slow(name: str, variant: str, k: int) -> float:
        """K-async with K = 2 takes what K-sync takes."""
        of = ShiftedExponential(1.0, 1.0)
        is_moved = (name, variant, k) == ("shifted_exponential", "k_async", 2)
        formula = bound("k_async", of, 2, 8).seconds
        return order_statistic(of, 2, 8) / formula if is_moved else faster(name, variant, k)

    assert verdict("kasync_le_ksync", made_times("table_runtime", PROVED, faster)).verdict == HOLDS
    moved = verdict("kasync_le_ksync", made_times("table_runtime", PROVED, as_slow))
    assert (moved.verdict, failing(moved)) == (FAILS, ["time of K-async / time of K-sync, shifted exponential, K = 2"])


# Figure 8.


def an_update_s(delay: str, variant: str, k: int) -> float:
    """11 ms and the mean of the k-th of 8 exponential delays; K-async waits for half of that."""
    mean = {"no_delay": 0.0, "delay_20ms": 0.02, "delay_50ms": 0.05}[delay]
    waiting = mean * order_statistic(Exponential(1.0), k, 8)
    return 0.011 + waiting if variant == "k_sync" or k == 8 else 0.010 + waiting / 2


def test_an_epoch_is_read_in_two_ways() -> None:
    artefact = made_fig8(an_update_s)
    rows = {row[0]: row[1:] for row in fig8_table(artefact).texts()}
    used, dealt = 50_000 / 32 * 0.011 * noise(1), 50_000 / 256 * 0.011 * noise(1)
    assert rows["K-sync, K = 1, no delay"][:2] == [f"{used:.2f} ± 0.02", f"{dealt:.2f} ± 0.00"]
    assert rows["K-sync, K = 1, no delay"][2:] == ["-700.0 ± 0.0", "0.0 ± 0.0"]
    assert rows["K-sync, K = 8, no delay"][0] == rows["K-sync, K = 8, no delay"][1]
    titles = [panel.title for panel in fig8(artefact).panels]
    assert titles == [
        f"{name}; {reading}" for reading in published("adasync")["epochs"].values() for name in ("K-sync", "K-async")
    ]
    assert len(fig8(artefact).panels[0].series) == 2 * 3


def test_savings_grow_with_the_delay_and_are_larger_with_k_async_or_they_are_not() -> None:
    whole = made_fig8(an_update_s)
    found = verdict("delay_variability", whole)
    assert (found.verdict, len(found.effects)) == (HOLDS, 12)
    assert verdict("kasync_saves_more", whole).verdict == HOLDS
    swapped = {"no_delay": "no_delay", "delay_20ms": "delay_50ms", "delay_50ms": "delay_20ms"}
    moved = verdict("delay_variability", made_fig8(lambda delay, variant, k: an_update_s(swapped[delay], variant, k)))
    assert (moved.verdict, len(failing(moved))) == (FAILS, 6)

    def slower(delay: str, variant: str, k: int) -> float:
        return an_update_s(delay, "k_sync", k) * (1.1 if variant == "k_async" else 1.0)

    moved = verdict("kasync_saves_more", made_fig8(slower))
    assert (moved.verdict, len(failing(moved))) == (FAILS, 9)


# Figures 1(b) and 2.


def convex(artefact: str = "fig2") -> Artefact:
    return made_convex(artefact, lambda variant, k: 0.04 / k)


def test_the_error_left_and_the_time_to_a_quarter_above_it() -> None:
    rows = {row[0]: row[1:] for row in fig2_table(convex()).texts()}
    assert len(rows) == 11
    # 0.3 / 2^t is first at most 0.05 at t = 3, and at most 0.00625 at t = 6
    assert rows["K-sync, K = 1"][:3] == ["1.000", "1.000 ± 0.000", "0.0400 ± 0.0000"]
    assert rows["K-sync, K = 1"][4] == "3.0 ± 0.0"
    assert rows["K-sync, K = 8"][:3] == ["0.125", "0.125 ± 0.000", "0.0050 ± 0.0000"]
    assert rows["K-sync, K = 8"][4] == "6.0 ± 0.0"
    assert rows["K-batch-async, K = 8"][1] == "0.125 ± 0.000", "over K-async's K = 1"
    theory_panel, ours = fig2(convex()).panels
    assert [series.label for series in ours.series] == ["K-async", "K-batch-async", "K-sync"]
    assert {len(series.x) for series in theory_panel.series} == {4}
    assert ours.series[2].y == pytest.approx([noise(1) * 0.04 / k for k in KS])


def test_theory_has_lower_floors_and_longer_times_for_larger_k_and_batch_variants_are_faster() -> None:
    for variant in VARIANTS:
        floors, times = zip(*(theoretical(variant, k) for k in KS), strict=True)
        assert floors == pytest.approx([floors[0] / k for k in KS])
        assert list(times) == sorted(times)
    assert theoretical("k_sync", 1)[0] == pytest.approx(0.25 * PROBLEM.first_error)
    assert theoretical("k_batch_async", 4)[1] < theoretical("k_async", 4)[1]
    assert theoretical("k_async", 8)[0] > theoretical("k_sync", 8)[0]


def test_figure_1b_draws_both_ends_in_theory_and_as_run() -> None:
    theory_panel, ours = fig1b(convex("fig1b")).panels
    names = ["synchronous (K = 8)", "asynchronous (K = 1)"]
    assert [series.label for series in theory_panel.series] == names
    assert [series.label for series in ours.series] == names
    assert theory_panel.series[1].y[50] < theory_panel.series[0].y[50], "asynchronous is ahead at first"
    assert theory_panel.series[1].y[-1] > theory_panel.series[0].y[-1]
    assert (ours.series[0].x[0], ours.series[0].y[0]) == (0.5, pytest.approx(0.3)), "0 is on no logarithmic axis"
    assert ours.series[1].y[-1] == pytest.approx(noise(1) * 0.04)


def test_without_the_minimum_there_is_no_error() -> None:
    artefact = without(convex(), "minimum", 1)
    with pytest.raises(RecordError, match=r"^adasync/fig2: the run `minimum` of seed 1 is missing; make adasync-fig2"):
        fig2(artefact)
    assert verdict("error_floor", *learning(), artefact).verdict == NOT_RUN


# Learning.


def falls(delay: str, variant: str, which: str, at: float) -> float:
    """Large K ends lower; small K is sooner; AdaSync is soonest and ends lowest."""
    k = 10 if which == "adasync" else int(which[1:])
    speed = 3.0 if which == "adasync" else 1.0 + 1.0 / k
    return 0.01 + 0.08 / k + 0.5 * math.exp(-speed * at)


LOSSES = {"targets": {"laptop": {"delay_20ms/k_sync": 0.095, "delay_20ms/k_async": 0.095}}}  # every K gets there


def fig9(error=falls, loss=falls) -> Artefact:
    return made_learning("fig9", fixed("k_sync"), error, loss)


def fig11(error=falls, loss=falls, report=LOSSES, interval: float = 0.4) -> Artefact:
    return made_learning("fig11", with_adasync(), error, loss, report, interval)


def learning(error=falls) -> list[Artefact]:
    return [fig9(error), made_learning("fig10", fixed("k_async"), error, falls), fig11(error)]


def test_a_training_loss_that_is_not_reached_has_no_time() -> None:
    artefact = fig11(loss=lambda delay, variant, which, at: 0.05 if which == "K8" else 0.7)
    rows = {row[0]: row[1:] for row in error_table(artefact).texts()}
    assert rows["K-sync, K = 4, delay of mean 0.02 s"][3] == "— (0/3)"
    assert rows["K-sync, K = 8, delay of mean 0.02 s"][3] == "1.0 ± 0.0"


def figure_of(artefact: Artefact) -> Figure:
    figure = PAPER.shows[artefact.name.partition("/")[2]](artefact)[""]
    assert isinstance(figure, Figure)
    return figure


def test_figures_9_to_11_and_appendix_e_have_a_panel_a_variant_and_delay() -> None:
    nine = figure_of(fig9())
    delays = ("no delay", "delay of mean 0.02 s", "delay of mean 0.05 s")
    assert [panel.title for panel in nine.panels] == [f"K-sync, {delay}" for delay in delays]
    assert [series.label for series in nine.panels[0].series] == ["K = 1", "K = 2", "K = 4", "K = 8"]
    assert nine.panels[0].series[0].y[-1] == pytest.approx(noise(1) * falls("", "", "K1", 10.0))
    assert [len(panel.series) for panel in figure_of(fig11()).panels] == [5, 5, 3, 3]
    appendix = appendix_e(made_learning("appendix_e", fixed("k_sync") + with_adasync()[5:], falls, falls))
    assert [len(panel.series) for panel in appendix.panels] == [4, 4, 4, 5]
    assert appendix.panels[0].series[0].x[0] == 1.0, "no loss is known before the first gradient"


def test_adasyncs_k_is_drawn_as_a_staircase() -> None:
    sync, _ = chosen(fig11())
    assert sync.title == "AdaSync on K-sync: K"
    assert list(sync.series[0].x) == [0.0, 4.0, 4.0, 10.0]
    assert list(sync.series[0].y) == [2.0, 2.0, 5.0, 5.0]
    assert sync.y_range == pytest.approx((0.0, 8.4)), "of eight workers"


def test_a_k_has_the_same_colour_in_all_panels_also_where_runs_are_missing() -> None:
    figure = figure_of(without(fig11(), "delay_20ms/k_async/K1", *SEEDS))
    sync, async_ = ({series.label: series.colour for series in panel.series} for panel in figure.panels[:2])
    assert set(sync) - set(async_) == {"K = 1"}
    assert async_.items() <= sync.items()


def test_error_floor_asks_the_largest_k_to_end_lower_everywhere() -> None:
    found = verdict("error_floor", *learning(), convex())
    assert (found.verdict, len(found.effects)) == (HOLDS, 3 + 6)

    def turned(delay: str, variant: str, which: str, at: float) -> float:
        other = {"K1": "K8", "K8": "K1"}.get(which, which) if delay == "delay_50ms" and variant == "k_async" else which
        return falls(delay, variant, other, at)

    moved = verdict("error_floor", *learning(turned), convex())
    assert moved.verdict == FAILS
    assert failing(moved) == ["test error at the end, K = 8 - K = 1, K-async, delay of mean 0.05 s, points"]
    rising = made_convex("fig2", lambda variant, k: 0.04 * (k if variant == "k_sync" else 1 / k))
    assert failing(verdict("error_floor", *learning(), rising)) == ["convex: error left at K = 8 / at K = 1, K-sync"]


def test_an_intermediate_k_is_best_with_delays_and_k_8_without() -> None:
    def best(delay: str, variant: str, which: str, at: float) -> float:
        return 0.1 if which == ("K8" if delay == "no_delay" else "K4") else 0.2

    def small_wins(delay: str, variant: str, which: str, at: float) -> float:
        return 0.05 if (delay, variant, which) == ("delay_20ms", "k_sync", "K1") else best(delay, variant, which, at)

    def always_4(delay: str, variant: str, which: str, at: float) -> float:
        return 0.1 if which == "K4" else 0.2

    found, similar = (verdict(key, *learning(best)) for key in ("intermediate_k", "intermediate_k_async"))
    assert (found.verdict, len(found.effects)) == (HOLDS, 3 + 2 + 2)
    assert (similar.verdict, len(similar.effects)) == (HOLDS, 2 + 2)
    moved = verdict("intermediate_k", *learning(small_wins))
    assert (moved.verdict, len(failing(moved))) == (FAILS, 1)
    without_delays = failing(verdict("intermediate_k", *learning(always_4)))
    assert len(without_delays) == 3, "it must be K = 8, here worse than K = 4 and no better than the others"
    assert verdict("intermediate_k_async", *learning(always_4)).verdict == HOLDS, "of no delay it asks nothing"


def test_a_rival_that_the_file_names_is_the_only_one() -> None:
    every = [effect.what for effect in verdict("adasync_fastest", fig11()).effects]
    assert len(every) == 2 * 4
    rivals = {"rivals": {"laptop": {"delay_20ms/k_sync": "K4"}}}
    named = fig11(report=LOSSES | rivals)
    assert [effect.what for effect in verdict("adasync_fastest", named).effects] == [
        what for what in every if "K-async" in what or "AdaSync / K = 4" in what
    ]
    unknown = {"rivals": {"laptop": {"delay_20ms/k_sync": "K3"}}}
    with pytest.raises(ValueError, match=r"^adasync/fig11: rivals: delay_20ms/k_sync must be one of K1, .*, got K3$"):
        verdict("adasync_fastest", fig11(report=LOSSES | unknown))


def test_adasync_is_fastest_to_the_fixed_loss_and_ends_lowest() -> None:
    assert verdict("adasync_fastest", fig11()).verdict == HOLDS
    found = verdict("adasync_floor", fig9(), fig11())
    assert (found.verdict, len(found.effects)) == (HOLDS, 4 + 1)

    def high(delay: str, variant: str, which: str, at: float) -> float:
        """AdaSync on K-async stays above the fixed loss, and ends at a larger error than K = 1."""
        own = which == "adasync" and variant == "k_async"
        return falls(delay, variant, which, at) + (0.1 if own else 0.0)

    moved = verdict("adasync_fastest", fig11(high, high))
    assert (moved.verdict, {"K-async" in what for what in failing(moved)}, len(failing(moved))) == (
        NOT_COMPARABLE,
        {True},
        4,
    )
    assert moved.effects[-1].flaw == "seeds that reach the target: adasync 0/3, K8 3/3"
    assert verdict("adasync_floor", fig9(), fig11(high, high)).verdict == FAILS


def test_as_fast_and_as_low_as_a_fixed_k_is_neither_faster_nor_lower() -> None:
    def as_k_8(delay: str, variant: str, which: str, at: float) -> float:
        return falls(delay, variant, "K8" if which == "adasync" else which, at)

    equal = fig11(as_k_8, as_k_8)
    assert failing(verdict("adasync_fastest", equal))[-1].endswith("AdaSync / K = 8, K-async")
    assert failing(verdict("adasync_floor", fig9(), equal)) == [
        "test error at the end, AdaSync on K-async - K = 8, points",
        "test error over the run, AdaSync on K-async - K = 8, points",
    ]


def test_a_loss_that_is_reached_before_k_could_change_tells_nothing_of_adapting() -> None:
    """AdaSync is there after 1 s: before the end of the second interval of 0.5 s, and after that of 0.4 s."""
    found = verdict("adasync_fastest", fig11(interval=0.5))
    assert found.verdict == NOT_COMPARABLE
    assert "AdaSync is there before K could change" in found.because
    assert verdict("adasync_fastest", fig11(interval=0.4)).verdict == HOLDS


def test_the_table_tells_whose_loss_times_are_to() -> None:
    without = error_table(fig11(report={}))
    assert not any("training loss fixed" in column.title for column in without.columns)
    table = error_table(fig11())
    assert {row[0]: row[4] for row in table.texts()}["K-sync, AdaSync, delay of mean 0.02 s"] == "1.0 ± 0.0"
    assert "s to the training loss fixed beforehand" in [column.title for column in table.columns]
    assert any("0.095 (delay_20ms/k_async)" in note for note in table.notes)


def test_adasync_is_judged_from_the_k_that_tuning_chose_and_its_readings_are_shown() -> None:
    readings = ("adasync_start", "adasync_K1", "adasync_K4")
    labels = [
        *with_adasync(),
        *(("delay_20ms", variant, which) for variant in ("k_sync", "k_async") for which in readings),
    ]

    def tuned(delay: str, variant: str, which: str, at: float) -> float:
        """From K_0 = 4 as AdaSync elsewhere; all else ends as K = 1."""
        return falls(delay, variant, {"adasync_K4": "adasync"}.get(which, which if is_fixed(which) else "K1"), at)

    first = made_learning("fig11", labels, tuned, tuned, LOSSES)
    rivals = {"rivals": {"laptop": {f"delay_20ms/{variant}/start": "adasync_K4" for variant in ("k_sync", "k_async")}}}
    fourth = replace(first, report=first.report | rivals)
    for artefact, expected in ((first, FAILS), (fourth, HOLDS)):
        assert verdict("adasync_fastest", artefact).verdict == expected
        assert verdict("adasync_floor", fig9(), artefact).verdict == expected
    what = verdict("adasync_floor", fig9(), fourth).effects[0].what
    assert what.startswith("test error at the end, AdaSync from K = 4 on")
    names = [row[0] for row in error_table(fourth).texts()]
    assert "K-sync, AdaSync, F_0 at the start, delay of mean 0.02 s" in names
    assert "AdaSync, F_0 at the start on K-sync: K" in [panel.title for panel in chosen(fourth)]


# The whole.


def test_the_command_writes_and_prints_all_forms_of_figures_and_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_records(tmp_path, "adasync/fig6", "laptop", fig6_runs(), {})
    assert main(["report", "adasync/fig6", "--results", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "AdaSync, Figure 6, at scale laptop" in shown
    assert "29.29" in shown
    assert {path.name for path in (tmp_path / "reports").iterdir()} == {
        *(f"adasync-fig6-laptop.{suffix}" for suffix in ("svg", "png", "pdf", "csv")),
        *(f"adasync-fig6-laptop-table.{suffix}" for suffix in ("md", "csv", "tex")),
    }
