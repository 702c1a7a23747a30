"""AdaSync's tables, figures and claims from small records written here, with the formulas that they are set against."""

import math
import re
from pathlib import Path

import pytest
from adasync_records import (
    KS,
    fixed,
    noise,
    with_adasync,
    write_convex,
    write_fig6,
    write_fig8,
    write_learning,
    write_times,
)

from reports.__main__ import main
from reports.adasync import PAPER
from reports.adasync.convex import PROBLEM, fig1b, fig2, fig2_table, theoretical
from reports.adasync.learning import appendix_e, chosen, error_table, fig8, fig8_table, is_fixed
from reports.adasync.runtimes import bound, fig6, fig6_table, fig7, fig7_table, runtime_table, theorem2_table
from reports.claims import FAILS, HOLDS, NOT_RUN, Verdict, judge
from reports.exhibits import ArtefactStore
from reports.figures import Figure
from reports.records import Artefact, load_artefact, published
from syncline.records.store import RecordError
from syncline.timing.distributions import Exponential, Pareto, ShiftedExponential
from syncline.timing.order_statistics import harmonic, order_statistic
from syncline.timing.run_times import VARIANTS, k_sync_s

PROVED = ("exponential", "shifted_exponential")


def load(results: Path, name: str) -> Artefact:
    return load_artefact(f"adasync/{name}", "laptop", results)


def verdict(results: Path, key: str) -> Verdict:
    claim = next(claim for claim in PAPER.claims if claim.key == key)
    return judge(claim, PAPER.claim_text(key), "laptop", ArtefactStore(results, "laptop").artefact)


def failing(found: Verdict) -> list[str]:
    return [number.effect.what for number in found.numbers if number.verdict != HOLDS]


# Figure 6 and Theorem 1.


def test_the_ratio_is_taken_seed_by_seed_and_stands_beside_theorem_1(tmp_path: Path) -> None:
    write_fig6(tmp_path, lambda name, workers: 1.01 if (name, workers) == ("exponential", 10) else 1.0)
    table = fig6_table(load(tmp_path, "fig6"))
    rows = {(row[0], row[1]): row[2:] for row in table.texts()}
    assert list(rows) == [("exponential", "2"), ("exponential", "10"), ("Pareto", "10"), ("Pareto", "2")]
    sync, async_, ours, theorem, percent = rows["exponential", "10"]
    assert (async_, theorem) == ("0.50000 ± 0.00000", "29.29")  # 10 H_10
    assert (sync, ours, percent) == ("14.806 ± 0.015", "29.61 ± 0.03", "1.10")
    notes = " ".join(table.notes)
    assert "exponential (mean 1), Pareto (minimum 1, shape 3, mean 1.5)" in notes
    assert "at most 1.10 % from the formula (exponential, P = 10)" in notes


def test_a_size_that_lacks_one_of_the_two_has_no_ratio(tmp_path: Path) -> None:
    write_fig6(tmp_path)
    for seed in range(3):
        (tmp_path / f"pareto-P2-async-{seed}" / "summary.json").unlink()
    artefact = load(tmp_path, "fig6")
    table = fig6_table(artefact)
    assert table.texts()[-1][3:5] == ["—", "—"]
    assert any("NOT COMPLETE" in note and "pareto/P2/async seed 0" in note for note in table.notes)
    assert fig6(artefact).panels[0].series[-1].x == [10]
    assert verdict(tmp_path, "theorem1").verdict == NOT_RUN


def test_figure_6_draws_a_line_and_points_for_each_distribution(tmp_path: Path) -> None:
    write_fig6(tmp_path)
    (panel,) = fig6(load(tmp_path, "fig6")).panels
    assert [series.kind for series in panel.series] == ["line", "points"] * 2
    line, dots = panel.series[:2]
    assert (line.label, line.x[0], line.x[-1]) == ("exponential, Theorem 1", 2, 10)
    assert line.y[-1] == pytest.approx(10 * harmonic(10))
    assert dots.y == pytest.approx([noise(1) * 3.0, noise(1) * 10 * harmonic(10)])


def test_theorem_1_is_judged_at_every_size_of_the_exponential_and_at_ten_workers(tmp_path: Path) -> None:
    write_fig6(tmp_path)
    found = verdict(tmp_path, "theorem1")
    assert (found.verdict, len(found.effects)) == (HOLDS, 3)
    write_fig6(tmp_path, lambda name, workers: 1.03 if name == "pareto" else 1.0)
    moved = verdict(tmp_path, "theorem1")
    assert (moved.verdict, failing(moved)) == (FAILS, ["sync / async over Theorem 1, Pareto, P = 10"])
    write_fig6(tmp_path, lambda name, workers: 0.97 if workers == 2 else 1.0)
    assert failing(verdict(tmp_path, "theorem1")) == ["sync / async over Theorem 1, exponential, P = 2"]


# Run times of the variants.


def test_a_bound_is_the_smaller_of_the_papers_two() -> None:
    """Lemma 3 and, for the shifted exponential, Lemma 4: ALGORITHMS' numbers for P = 8, shift and scale 1."""
    shifted = ShiftedExponential(1.0, 1.0)
    assert bound("k_async", shifted, 1, 8).seconds == pytest.approx((1 + harmonic(8)) / 8)
    assert bound("k_async", shifted, 6, 8).seconds == order_statistic(shifted, 6, 8)
    assert bound("k_async", shifted, 8, 8).claim == "equality"
    assert bound("k_async", Exponential(1.0), 3, 8).claim == "equality"
    assert bound("k_batch_sync", Pareto(1.0, 3.0), 3, 8).claim == "unproved"


def test_each_variant_stands_beside_what_is_proved_of_it(tmp_path: Path) -> None:
    write_times(tmp_path, "fig7", ("pareto", "shifted_exponential"))
    table = fig7_table(load(tmp_path, "fig7"))
    rows = {row[0]: row[1:] for row in table.texts()}
    # Pareto, K = 8 of 8: K-sync and K-async are BSP; of K-batch-sync nothing is proved
    largest = order_statistic(Pareto(1.0, 3.0), 8, 8)
    exact = [f"{noise(1) * largest:.3f} ± {0.001 * largest:.3f}", f"= {largest:.3f}"]
    assert rows["Pareto, K = 8"] == [*exact, *exact, "1.502 ± 0.002", "= 1.500", "9.009 ± 0.009", "—"]
    assert rows["shifted exponential, K = 1"][3] == f"≤ {(1 + harmonic(8)) / 8:.3f}"
    assert rows["shifted exponential, K = 8"][7] == "≤ 9.000"  # 8 (1 + 1 / 8)
    assert "at most 0.10 % from the formula" in " ".join(table.notes)


def test_a_mean_above_its_bound_is_named_and_one_below_is_not(tmp_path: Path) -> None:
    write_times(tmp_path, "fig7", ("pareto", "shifted_exponential"), lambda name, variant, k: 1.05)
    notes = " ".join(fig7_table(load(tmp_path, "fig7")).notes)
    assert re.search(r"at most 5\.1\d % from the formula", notes)
    assert "Above a proved bound: K-async, shifted exponential, K = 1" in notes
    assert "Pareto, K = 4" not in notes.partition("Above")[2]  # nothing is proved, nothing is exceeded
    write_times(tmp_path, "fig7", ("shifted_exponential",), lambda name, variant, k: 0.9)
    assert "Above a proved bound: none." in fig7_table(load(tmp_path, "fig7")).notes


def test_figure_7_has_a_panel_a_distribution_with_what_is_proved_as_lines(tmp_path: Path) -> None:
    write_times(tmp_path, "fig7", ("pareto", "shifted_exponential"))
    pareto, shifted = fig7(load(tmp_path, "fig7")).panels
    assert (pareto.title, shifted.title) == ("Pareto, P = 8", "shifted exponential, P = 8")
    dots = {series.label: series for series in shifted.series if series.kind == "points"}
    assert list(dots) == ["K-sync", "K-async", "K-batch-async", "K-batch-sync"]
    assert dots["K-sync"].y == pytest.approx([noise(1) * k_sync_s(ShiftedExponential(1, 1), k, 8) for k in KS])
    styles = [series.style for series in shifted.series if series.kind == "line"]
    assert styles == ["-", "-", "--", "-", "-", "--"]  # K-async is exact at K = P, K-batch-sync at K = 1
    assert [len(series.x) for series in pareto.series if series.kind == "line"] == [4, 1, 4, 1]


def test_the_table_of_run_times_has_the_papers_number_beside_ours(tmp_path: Path) -> None:
    write_times(tmp_path, "table_runtime", PROVED, lambda name, variant, k: 0.5 if variant == "k_async" else 1.0)
    table = runtime_table(load(tmp_path, "table_runtime"))
    rows = {row[0]: row[1:] for row in table.texts()}
    assert len(rows) == 4 * 2 * 4
    assert rows["K-sync, K = 8, exponential"] == ["E[X_{K:P}]", "= 2.7179", "2.7206 ± 0.0027", "1.001 ± 0.001"]
    assert rows["K-async, K = 1, shifted exponential"][1:] == ["≤ 0.4647", "0.2326 ± 0.0002", "0.501 ± 0.001"]
    assert rows["K-batch-async, K = 4, exponential"][1] == "= 0.5000"
    assert "at most 49.95 %" in " ".join(table.notes)


def test_theorem_2_is_a_ratio_of_variants_seed_by_seed(tmp_path: Path) -> None:
    write_times(tmp_path, "table_runtime", PROVED)
    rows = theorem2_table(load(tmp_path, "table_runtime")).texts()
    assert rows[-1] == ["K = 8", "2.718", "2.718 ± 0.000", "2.718 ± 0.000"]
    assert verdict(tmp_path, "theorem2").verdict == HOLDS
    write_times(tmp_path, "table_runtime", PROVED, lambda name, variant, k: 1.02 if variant == "k_batch_sync" else 1.0)
    moved = verdict(tmp_path, "theorem2")
    assert (moved.verdict, len(failing(moved))) == (FAILS, 4)
    for seed in range(3):
        (tmp_path / f"exponential-k_batch_sync-K8-{seed}" / "summary.json").unlink()
    assert theorem2_table(load(tmp_path, "table_runtime")).texts()[-1][2:] == ["2.718 ± 0.000", "—"]
    assert verdict(tmp_path, "theorem2").verdict == NOT_RUN


def write_both(results: Path, slow: str = "", by: float = 1.0) -> None:
    """A factor on one variant under the Pareto distribution alone."""
    write_times(results, "table_runtime", PROVED)
    write_times(
        results,
        "fig7",
        ("pareto", "shifted_exponential"),
        lambda name, variant, k: by if (name, variant) == ("pareto", slow) else 1.0,
    )


@pytest.mark.parametrize(("key", "variant"), [("ksync_formula", "k_sync"), ("kbatchasync_formula", "k_batch_async")])
def test_a_formula_holds_for_every_distribution_or_not(tmp_path: Path, key: str, variant: str) -> None:
    write_both(tmp_path)
    found = verdict(tmp_path, key)
    assert (found.verdict, len(found.effects)) == (HOLDS, 12), "rows that both artefacts have count once"
    write_both(tmp_path, variant, 0.98)
    moved = verdict(tmp_path, key)
    assert moved.verdict == FAILS
    assert all("Pareto" in what for what in failing(moved))
    write_both(tmp_path, "k_async", 1.5)
    assert verdict(tmp_path, key).verdict == HOLDS, "other variants are ignored"


def test_k_async_must_be_strictly_faster_where_times_have_a_large_shift(tmp_path: Path) -> None:
    def faster(name: str, variant: str, k: int) -> float:
        return 0.9 if (name, variant) == ("shifted_exponential", "k_async") and k < 8 else 1.0

    write_times(tmp_path, "table_runtime", PROVED, faster)
    assert verdict(tmp_path, "kasync_le_ksync").verdict == HOLDS

    def as_slow(name: str, variant: str, k: int) -> float:
        """K-async with K = 2 takes what K-sync takes."""
        of = ShiftedExponential(1.0, 1.0)
        is_moved = (name, variant, k) == ("shifted_exponential", "k_async", 2)
        formula = bound("k_async", of, 2, 8).seconds
        return k_sync_s(of, 2, 8) / formula if is_moved else faster(name, variant, k)

    write_times(tmp_path, "table_runtime", PROVED, as_slow)
    moved = verdict(tmp_path, "kasync_le_ksync")
    assert (moved.verdict, failing(moved)) == (FAILS, ["time of K-async / time of K-sync, shifted exponential, K = 2"])


# Figure 8.


def an_update_s(delay: str, variant: str, k: int) -> float:
    """11 ms and the mean of the k-th of 8 exponential delays; K-async waits for half of that."""
    mean = {"no_delay": 0.0, "delay_20ms": 0.02, "delay_50ms": 0.05}[delay]
    waiting = mean * order_statistic(Exponential(1.0), k, 8)
    return 0.011 + waiting if variant == "k_sync" or k == 8 else 0.010 + waiting / 2


def test_an_epoch_is_read_in_two_ways(tmp_path: Path) -> None:
    write_fig8(tmp_path, an_update_s)
    artefact = load(tmp_path, "fig8")
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


def test_savings_grow_with_the_delay_or_they_do_not(tmp_path: Path) -> None:
    write_fig8(tmp_path, an_update_s)
    found = verdict(tmp_path, "delay_variability")
    assert (found.verdict, len(found.effects)) == (HOLDS, 12)
    assert verdict(tmp_path, "kasync_saves_more").verdict == HOLDS
    swapped = {"no_delay": "no_delay", "delay_20ms": "delay_50ms", "delay_50ms": "delay_20ms"}
    write_fig8(tmp_path, lambda delay, variant, k: an_update_s(swapped[delay], variant, k))
    moved = verdict(tmp_path, "delay_variability")
    assert (moved.verdict, len(failing(moved))) == (FAILS, 6)


def test_k_async_saves_more_or_it_does_not(tmp_path: Path) -> None:
    write_fig8(
        tmp_path, lambda delay, variant, k: an_update_s(delay, "k_sync", k) * (1.1 if variant == "k_async" else 1)
    )
    moved = verdict(tmp_path, "kasync_saves_more")
    assert (moved.verdict, len(failing(moved))) == (FAILS, 9)


# Figures 1(b) and 2.


def test_the_error_left_and_the_time_to_a_quarter_above_it(tmp_path: Path) -> None:
    write_convex(tmp_path, "fig2", lambda variant, k: 0.04 / k)
    artefact = load(tmp_path, "fig2")
    rows = {row[0]: row[1:] for row in fig2_table(artefact).texts()}
    assert len(rows) == 11
    # 0.3 / 2^t is first at most 0.05 at t = 3, and at most 0.00625 at t = 6
    assert rows["K-sync, K = 1"][:3] == ["1.000", "1.000 ± 0.000", "0.0400 ± 0.0000"]
    assert rows["K-sync, K = 1"][4] == "3.0 ± 0.0"
    assert rows["K-sync, K = 8"][:3] == ["0.125", "0.125 ± 0.000", "0.0050 ± 0.0000"]
    assert rows["K-sync, K = 8"][4] == "6.0 ± 0.0"
    assert rows["K-batch-async, K = 8"][1] == "0.125 ± 0.000", "over K-async's K = 1"
    theory_panel, ours = fig2(artefact).panels
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


def test_figure_1b_draws_both_ends_in_theory_and_as_run(tmp_path: Path) -> None:
    write_convex(tmp_path, "fig1b", lambda variant, k: 0.04 / k)
    theory_panel, ours = fig1b(load(tmp_path, "fig1b")).panels
    names = ["synchronous (K = 8)", "asynchronous (K = 1)"]
    assert [series.label for series in theory_panel.series] == names
    assert [series.label for series in ours.series] == names
    assert theory_panel.series[1].y[50] < theory_panel.series[0].y[50], "asynchronous is ahead at first"
    assert theory_panel.series[1].y[-1] > theory_panel.series[0].y[-1]
    assert (ours.series[0].x[0], ours.series[0].y[0]) == (0.5, pytest.approx(0.3)), "0 is on no logarithmic axis"
    assert ours.series[1].y[-1] == pytest.approx(noise(1) * 0.04)


def test_without_the_minimum_there_is_no_error(tmp_path: Path) -> None:
    write_convex(tmp_path, "fig2", lambda variant, k: 0.04 / k)
    (tmp_path / "minimum-1" / "summary.json").unlink()
    with pytest.raises(RecordError, match=r"^adasync/fig2: the run `minimum` of seed 1 is missing; make adasync-fig2"):
        fig2(load(tmp_path, "fig2"))
    assert verdict(tmp_path, "error_floor").verdict == NOT_RUN


# Learning.


def falls(delay: str, variant: str, which: str, at: float) -> float:
    """Large K ends lower; small K is sooner; AdaSync is soonest and ends lowest."""
    k = 10 if which == "adasync" else int(which[1:])
    speed = 3.0 if which == "adasync" else 1.0 + 1.0 / k
    return 0.01 + 0.08 / k + 0.5 * math.exp(-speed * at)


LOSSES = {"targets": {"laptop": {"delay_20ms/k_sync": 0.095, "delay_20ms/k_async": 0.095}}}  # every K gets there


def write_all(results: Path, error=falls, loss=falls) -> None:
    write_learning(results, "fig9", fixed("k_sync"), error, loss)
    write_learning(results, "fig10", fixed("k_async"), error, loss)
    write_learning(results, "fig11", with_adasync(), error, loss, LOSSES)
    write_convex(results, "fig2", lambda variant, k: 0.04 / k)


def test_what_a_curve_comes_to(tmp_path: Path) -> None:
    write_learning(tmp_path, "fig9", fixed("k_sync"), lambda *_: 0.2, lambda d, v, which, at: 5.0 - 0.1 * at)
    table = error_table(load(tmp_path, "fig9"), "Figure 9")
    rows = {row[0]: row[1:] for row in table.texts()}
    assert len(rows) == 12
    mean, final, loss, seconds, updates, epochs, staleness = rows["K-sync, K = 1, no delay"]
    assert mean == final.replace("20.02", "20.0").replace("0.02", "0.0") == "20.0 ± 0.0"
    assert loss == "4.1041 ± 0.0041"  # at 8, 9 and 10 s: 4.2, 4.1, 4.0
    assert (seconds, updates, epochs, staleness) == ("9.0 ± 0.0", "100 ± 0", "10.0 ± 0.0", "0.50 ± 0.00")


def test_a_training_loss_that_is_not_reached_has_no_time(tmp_path: Path) -> None:
    def loss(delay: str, variant: str, which: str, at: float) -> float:
        return 0.5 if which == "K8" else 0.7

    write_learning(tmp_path, "fig9", fixed("k_sync"), falls, loss)
    rows = {row[0]: row[1:] for row in error_table(load(tmp_path, "fig9"), "Figure 9").texts()}
    assert rows["K-sync, K = 4, no delay"][3] == "— (0/3)"
    assert rows["K-sync, K = 8, no delay"][3] == "1.0 ± 0.0"


def test_figures_9_to_11_and_appendix_e_have_a_panel_a_variant_and_delay(tmp_path: Path) -> None:
    write_all(tmp_path)
    write_learning(tmp_path, "appendix_e", fixed("k_sync") + with_adasync()[5:], falls, falls)
    nine = PAPER.shows["fig9"](load(tmp_path, "fig9"))[""]
    assert isinstance(nine, Figure)
    assert [panel.title for panel in nine.panels] == [
        "K-sync, no delay",
        "K-sync, delay of mean 0.02 s",
        "K-sync, delay of mean 0.05 s",
    ]
    assert [series.label for series in nine.panels[0].series] == ["K = 1", "K = 2", "K = 4", "K = 8"]
    assert nine.panels[0].series[0].y[-1] == pytest.approx(noise(1) * falls("", "", "K1", 10.0))
    eleven = PAPER.shows["fig11"](load(tmp_path, "fig11"))[""]
    assert isinstance(eleven, Figure)
    assert [len(panel.series) for panel in eleven.panels] == [5, 5, 3, 3]
    appendix = appendix_e(load(tmp_path, "appendix_e"))
    assert [len(panel.series) for panel in appendix.panels] == [4, 4, 4, 5]
    assert appendix.panels[0].series[0].x[0] == 1.0, "no loss is known before the first gradient"


def test_adasyncs_k_is_drawn_as_a_staircase(tmp_path: Path) -> None:
    write_all(tmp_path)
    sync, _ = chosen(load(tmp_path, "fig11"))
    assert sync.title == "AdaSync on K-sync: K"
    assert list(sync.series[0].x) == [0.0, 4.0, 4.0, 10.0]
    assert list(sync.series[0].y) == [2.0, 2.0, 5.0, 5.0]
    assert sync.y_range == pytest.approx((0.0, 8.4)), "of eight workers"


def test_a_k_has_the_same_colour_in_all_panels_also_where_runs_are_missing(tmp_path: Path) -> None:
    write_all(tmp_path)
    for path in tmp_path.glob("delay_20ms-k_async-K1-*/summary.json"):
        path.unlink()
    figure = PAPER.shows["fig11"](load(tmp_path, "fig11"))[""]
    assert isinstance(figure, Figure)
    sync, async_ = ({series.label: series.colour for series in panel.series} for panel in figure.panels[:2])
    assert set(sync) - set(async_) == {"K = 1"}
    assert async_.items() <= sync.items()


def test_error_floor_asks_the_largest_k_to_end_lower_everywhere(tmp_path: Path) -> None:
    write_all(tmp_path)
    found = verdict(tmp_path, "error_floor")
    assert (found.verdict, len(found.effects)) == (HOLDS, 3 + 6)

    def turned(delay: str, variant: str, which: str, at: float) -> float:
        other = {"K1": "K8", "K8": "K1"}.get(which, which) if delay == "delay_50ms" and variant == "k_async" else which
        return falls(delay, variant, other, at)

    write_all(tmp_path, error=turned)
    moved = verdict(tmp_path, "error_floor")
    assert moved.verdict == FAILS
    assert failing(moved) == ["test error at the end, K = 8 - K = 1, K-async, delay of mean 0.05 s, points"]
    write_all(tmp_path)
    write_convex(tmp_path, "fig2", lambda variant, k: 0.04 * (k if variant == "k_sync" else 1 / k))
    assert failing(verdict(tmp_path, "error_floor")) == ["convex: error left at K = 8 / at K = 1, K-sync"]


def test_an_intermediate_k_is_best_with_delays_and_k_8_without(tmp_path: Path) -> None:
    def best(delay: str, variant: str, which: str, at: float) -> float:
        return 0.1 if which == ("K8" if delay == "no_delay" else "K4") else 0.2

    write_all(tmp_path, error=best)
    found = verdict(tmp_path, "intermediate_k")
    assert (found.verdict, len(found.effects)) == (HOLDS, 2 * (3 + 2 + 2))

    def small_wins(delay: str, variant: str, which: str, at: float) -> float:
        return 0.05 if (delay, variant, which) == ("delay_20ms", "k_sync", "K1") else best(delay, variant, which, at)

    write_all(tmp_path, error=small_wins)
    moved = verdict(tmp_path, "intermediate_k")
    assert (moved.verdict, len(failing(moved))) == (FAILS, 1)
    write_all(tmp_path, error=lambda delay, variant, which, at: 0.1 if which == "K4" else 0.2)
    without = failing(verdict(tmp_path, "intermediate_k"))
    assert len(without) == 2 * 3, "without delays it must be K = 8, here worse than K = 4 and no better than the others"


def test_a_rival_that_the_file_names_is_the_only_one(tmp_path: Path) -> None:
    write_all(tmp_path)
    every = [effect.what for effect in verdict(tmp_path, "adasync_fastest").effects]
    assert len(every) == 2 * 4
    rivals = {"rivals": {"laptop": {"delay_20ms/k_sync": "K4", "delay_20ms/k_async/end": "K8"}}}
    write_learning(tmp_path, "fig11", with_adasync(), falls, falls, LOSSES | rivals)
    named = [effect.what for effect in verdict(tmp_path, "adasync_fastest").effects]
    assert named == [what for what in every if "K-async" in what or "AdaSync / K = 4" in what]
    ends = [effect.what for effect in verdict(tmp_path, "adasync_floor").effects]
    assert ends == [f"test error {when}, AdaSync on K-async - K = 8, points" for when in ("at the end", "over the run")]
    unknown = {"rivals": {"laptop": {"delay_20ms/k_sync": "K3"}}}
    write_learning(tmp_path, "fig11", with_adasync(), falls, falls, LOSSES | unknown)
    with pytest.raises(ValueError, match=r"^adasync/fig11: rivals: delay_20ms/k_sync must be one of K1, .*, got K3$"):
        verdict(tmp_path, "adasync_fastest")


def test_adasync_is_fastest_to_the_fixed_loss_and_ends_lowest(tmp_path: Path) -> None:
    write_all(tmp_path)
    assert verdict(tmp_path, "adasync_fastest").verdict == HOLDS
    found = verdict(tmp_path, "adasync_floor")
    assert (found.verdict, len(found.effects)) == (HOLDS, 4 + 1)

    def high(delay: str, variant: str, which: str, at: float) -> float:
        """AdaSync on K-async stays above the fixed loss, and ends at a larger error than K = 1."""
        own = which == "adasync" and variant == "k_async"
        return falls(delay, variant, which, at) + (0.1 if own else 0.0)

    write_all(tmp_path, error=high, loss=high)
    moved = verdict(tmp_path, "adasync_fastest")
    assert (moved.verdict, {"K-async" in what for what in failing(moved)}, len(failing(moved))) == (FAILS, {True}, 4)
    assert moved.effects[-1].estimate == pytest.approx(10.0 / 2.0), "its whole time against that of K = 8"
    assert verdict(tmp_path, "adasync_floor").verdict == FAILS


def test_as_fast_and_as_low_as_a_fixed_k_is_neither_faster_nor_lower(tmp_path: Path) -> None:
    def as_k_8(delay: str, variant: str, which: str, at: float) -> float:
        return falls(delay, variant, "K8" if which == "adasync" else which, at)

    write_all(tmp_path, error=as_k_8, loss=as_k_8)
    assert failing(verdict(tmp_path, "adasync_fastest"))[-1].endswith("AdaSync / K = 8, K-async")
    assert failing(verdict(tmp_path, "adasync_floor")) == [
        "test error at the end, AdaSync on K-async - K = 8, points",
        "test error over the run, AdaSync on K-async - K = 8, points",
    ]


def test_a_loss_that_is_reached_before_k_could_change_tells_nothing_of_adapting(tmp_path: Path) -> None:
    """AdaSync is there after 1 s: before the end of the second interval of 0.5 s, and after that of 0.4 s."""
    write_all(tmp_path)
    write_learning(tmp_path, "fig11", with_adasync(), falls, falls, LOSSES, interval=0.5)
    found = verdict(tmp_path, "adasync_fastest")
    assert (found.verdict, {effect.num_present for effect in found.effects}) == (NOT_RUN, {0})
    assert "before K could change: nothing to compare" in found.because
    write_learning(tmp_path, "fig11", with_adasync(), falls, falls, LOSSES, interval=0.4)
    assert verdict(tmp_path, "adasync_fastest").verdict == HOLDS


def test_without_a_fixed_loss_nobody_is_fastest(tmp_path: Path) -> None:
    write_all(tmp_path)
    write_learning(tmp_path, "fig11", with_adasync(), falls, falls)
    found = verdict(tmp_path, "adasync_fastest")
    assert (found.verdict, "a fixed target of delay_20ms/k_sync" in found.because) == (NOT_RUN, True)
    headings = [column.title for column in error_table(load(tmp_path, "fig11"), "Figure 11").columns]
    assert "s to the training loss that K = 8 ends at" in headings
    write_learning(tmp_path, "fig11", with_adasync(), falls, falls, LOSSES)
    table = error_table(load(tmp_path, "fig11"), "Figure 11")
    rows = {row[0]: row[4] for row in table.texts()}
    assert rows["K-sync, AdaSync, delay of mean 0.02 s"] == "1.0 ± 0.0"
    assert "s to the training loss fixed beforehand" in [column.title for column in table.columns]
    assert any("0.095 (delay_20ms/k_async)" in note for note in table.notes)


def test_adasync_is_judged_from_the_k_that_tuning_chose_and_its_readings_are_shown(tmp_path: Path) -> None:
    readings = ("adasync_start", "adasync_K1", "adasync_K4")
    labels = [
        *with_adasync(),
        *(("delay_20ms", variant, which) for variant in ("k_sync", "k_async") for which in readings),
    ]

    def tuned(delay: str, variant: str, which: str, at: float) -> float:
        """From K_0 = 4 as AdaSync elsewhere; all else ends as K = 1."""
        return falls(delay, variant, {"adasync_K4": "adasync"}.get(which, which if is_fixed(which) else "K1"), at)

    write_learning(tmp_path, "fig11", labels, tuned, tuned, LOSSES)
    assert verdict(tmp_path, "adasync_fastest").verdict == verdict(tmp_path, "adasync_floor").verdict == FAILS
    rivals = {"rivals": {"laptop": {f"delay_20ms/{variant}/start": "adasync_K4" for variant in ("k_sync", "k_async")}}}
    write_learning(tmp_path, "fig11", labels, tuned, tuned, LOSSES | rivals)
    assert verdict(tmp_path, "adasync_fastest").verdict == verdict(tmp_path, "adasync_floor").verdict == HOLDS
    assert verdict(tmp_path, "adasync_floor").effects[0].what.startswith("test error at the end, AdaSync from K = 4 on")
    artefact = load(tmp_path, "fig11")
    names = [row[0] for row in error_table(artefact, "Figure 11").texts()]
    assert "K-sync, AdaSync, F_0 at the start, delay of mean 0.02 s" in names
    assert "AdaSync, F_0 at the start on K-sync: K" in [panel.title for panel in chosen(artefact)]


def test_a_missing_run_leaves_its_claims_open(tmp_path: Path) -> None:
    write_all(tmp_path)
    (tmp_path / "delay_20ms-k_sync-adasync-0" / "summary.json").unlink()
    assert verdict(tmp_path, "adasync_fastest").verdict == NOT_RUN
    assert verdict(tmp_path, "adasync_floor").verdict != NOT_RUN, "it is of K-async"
    assert verdict(tmp_path, "intermediate_k").verdict != NOT_RUN, "it has other runs"


# The whole.


def test_the_commands_write_and_print_all_forms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_times(tmp_path, "fig7", ("pareto", "shifted_exponential"))
    assert main(["adasync/fig7", "--results", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "AdaSync, Figure 7, at scale laptop" in shown
    assert "≤ 9.000" in shown
    written = {path.name for path in (tmp_path / "reports").iterdir()}
    assert written == {
        *(f"adasync-fig7-laptop.{suffix}" for suffix in ("svg", "png", "pdf", "csv", "drawn")),
        *(f"adasync-fig7-laptop-table.{suffix}" for suffix in ("md", "csv", "tex")),
    }


def test_every_variant_has_a_name_a_formula_and_a_picture() -> None:
    paper = published("adasync")
    assert set(paper["formulas"]) == set(paper["pictures"]) == set(VARIANTS)
    assert set(paper["formulas"]) < set(paper["names"])
