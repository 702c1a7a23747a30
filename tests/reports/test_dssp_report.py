"""DSSP's tables, figures and claims from runs made here: the published stays, what is ours is computed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from written import RunInMemory, artefact_of, made_run, verdict_on, without

from reports.claims import NOT_RUN
from reports.dssp import PAPER
from reports.dssp.equal import fig3, fig3_table, readings_table, times_table
from reports.dssp.mixed import fig4, higher_target, table1, target
from reports.dssp.runs import networks
from reports.effects import FAILS, HOLDS, NOT_COMPARABLE, UNDECIDED
from reports.records import Artefact, published

MIXED = {
    "model": {"name": "resnet", "depth": 8},
    "dataset": {"name": "glyphs10", "train_size": 4000},
    "cluster": {"workers": 2, "gradient_s": [0.051, 0.158]},
    "epochs": 3.0,
    "eval_every_epochs": 1.0,
}
EQUAL = {
    "model": {"name": "lenet"},
    "dataset": {"name": "glyphs10"},
    "cluster": {"workers": 4, "jitter": {"std": 0.25}},
    "epochs": 2.0,
    "optimizer": {"lr": 0.05},
    "gradients": True,
    "lr_clock": "samples",
    "async_gradient": "mean",
}

Accuracies = Sequence[float]


def written(
    label: str,
    seed: int,
    config: Mapping[str, Any],
    times: Sequence[float],
    accuracies: Accuracies,
    lead: int = 4,
    rates: Sequence[float] = (),
) -> RunInMemory:
    """A learning run with an evaluation at each time, one an epoch."""
    rows = [
        {"time_s": at, "epoch": float(epoch), "accuracy": height, "learning_rate": rate}
        for epoch, (at, height, rate) in enumerate(zip(times, accuracies, rates or [0.1] * len(times), strict=True))
    ]
    best = {"accuracy": {"value": max(accuracies)}}
    summary = {"time_s": times[-1], "max_lead": lead, "mean_staleness": 0.5, "best": best}
    return made_run(label, seed, config, summary, rows)


# The mixed cluster: Table I and Figure 4.

TIMES = {"bsp": [0, 10, 20, 30], "asp": [0, 5, 10, 15], "ssp_s3": [0, 10, 20, 30], "ssp_s6": [0, 10, 20, 30]}
TIMES |= {"ssp_s15": [0, 10, 20, 30], "dssp_s3_r12": [0, 5, 10, 15]}
BETTER = [0.1, 0.2, 0.30, 0.33]
CURVES: dict[str, Accuracies] = dict.fromkeys(TIMES, BETTER) | {"bsp": [0.1, 0.2, 0.29, 0.305]}
CURVES["ssp_s3"] = [0.1, 0.2, 0.25, 0.301]
ALONE = {"bsp": 6171.0, "asp": 3012.0, "ssp_s3": 6171.0, "ssp_s6": 6171.0, "ssp_s15": 6170.0, "dssp_s3_r12": 3025.0}


def made_mixed(
    curves: Mapping[str, Accuracies] = CURVES,
    alone: Mapping[str, float] = ALONE,
    seeds: Sequence[int] = (0, 1, 2),
    scale: str = "laptop",
    goal: float | None = None,
    times: Mapping[str, Sequence[float]] = TIMES,
    name: str = "table1",
) -> Artefact:
    """Table I; Figure 4 has no times alone."""
    runs = [written(label, seed, MIXED, times[label], curves[label]) for label in curves for seed in seeds]
    timing = [
        made_run(f"{label}/timing", seed, MIXED, {"time_s": alone[label] + seed})
        for label in curves
        for seed in seeds
        if label in alone
    ]
    shown = [*runs, *timing] if name == "table1" else runs
    return artefact_of(f"dssp/{name}", shown, {"targets": {scale: goal}}, scale)


def test_the_targets_are_the_fixed_one_and_a_point_above_it() -> None:
    """0.28 + 0.01 is no binary fraction, and more than 0.29."""
    artefact = made_mixed(goal=0.28)
    assert (target(artefact).level, higher_target(artefact).level) == (0.28, 0.29)


def test_a_network_that_has_learned_nothing_has_not_reached_its_target() -> None:
    """Where the target is as low as the start, the first evaluation after it counts, and no time is divided by 0."""
    rows = table1(made_mixed({"bsp": [0.2, 0.1, 0.1, 0.2], "asp": [0.2, 0.2, 0.1, 0.1]}, {}, goal=0.2)).texts()
    assert [row[4] for row in rows] == ["30.0 ± 0.0", "5.0 ± 0.0"]


def test_without_a_fixed_target_or_bsp_table_1_has_no_times() -> None:
    table = table1(made_mixed(goal=None))
    assert {tuple(row[4:6]) for row in table.texts()} == {("— (0/3)", "— (0/3)")}
    assert "Targets: none is fixed at this scale." in table.notes
    (row,) = table1(made_mixed({"asp": BETTER}, {}, goal=0.3)).texts()
    assert row[3:5] == ["—", "10.0 ± 0.0"]
    assert row[7] == "—"


def test_figure_4_has_a_curve_a_paradigm_and_stars_only_where_they_apply() -> None:
    (panel,) = fig4(made_mixed(name="fig4")).panels
    assert panel.x_label == "virtual time, s"
    assert [series.label for series in panel.series] == [published("dssp")["names"][label] for label in TIMES]
    assert (panel.series[1].x[-1], panel.series[1].y[-1]) == (15.0, pytest.approx(0.33))
    stars = fig4(made_mixed(scale="paper", goal=0.67, name="fig4")).panels[0].series[-1]
    assert stars.published
    assert (stars.x[0], stars.y[0]) == (6159.2, 0.67)
    assert len(stars.x) == 10  # two of the twelve were not reached


# The equal servers: Figure 3.

TARGETS = {"laptop": {"alexnet": 0.4, "resnet50": 0.4, "resnet110": 0.4}}
PARADIGMS = ("bsp", "asp", "dssp", "dssp_hard", "ssp_s3", "ssp_s15")
LEARNED: dict[str, Accuracies] = {key: [0.1, 0.4, 0.6] for key in PARADIGMS} | {"bsp": [0.1, 0.3, 0.405]}
EPOCH_S = dict.fromkeys(PARADIGMS, 4.0) | {"bsp": 6.0}
READING = {"asp/clock": {"lr_clock": "server_updates"}, "asp/share": {"async_gradient": "mean_over_workers"}}
READING |= {key: {"optimizer": {"lr": 0.01}} for key in ("bsp/paper", "asp/paper")}


def made_equal(
    learned: Mapping[str, Mapping[str, Accuracies]] | None = None,
    epoch_s: Mapping[str, Mapping[str, float]] | None = None,
    seeds: Sequence[int] = (0, 1),
    chosen: Sequence[str] = ("alexnet", "resnet50", "resnet110"),
    goals: Mapping[str, Any] = TARGETS,
) -> Artefact:
    """The chosen networks; `learned` and `epoch_s`: network -> paradigm -> what differs from the constants above."""
    runs = []
    for network in chosen:
        curves = LEARNED | dict((learned or {}).get(network, {}))
        seconds = EPOCH_S | dict((epoch_s or {}).get(network, {}))
        for paradigm, accuracies in curves.items():
            rates = (0.1, 0.01, 0.01) if paradigm.endswith("clock") else (0.1, 0.1, 0.01)
            own = EQUAL | READING.get(paradigm, {})
            for seed in seeds:
                label = f"{network}/{paradigm}"
                moved = [accuracy + 0.001 * seed for accuracy in accuracies]
                runs.append(written(label, seed, own, (0.0, 1.0, 2.0), moved, rates=rates))
                time_s = 30 * seconds[paradigm.partition("/")[0]]
                about = {"time_s": time_s, "updates": 600, "max_lead": 7}
                config = own | {"epochs": 30.0, "gradients": False}
                runs.append(made_run(f"{label}/timing", seed, config, about))
    report = {"targets": goals, "tensors": {"alexnet": 10, "resnet50": 100, "resnet110": 200}}
    return artefact_of("dssp/fig3", runs, report)


def rows_of(table: Any) -> dict[str, list[str]]:
    return {row[0]: row[1:] for row in table.texts()}


def test_figure_3_has_all_paradigms_with_the_average_and_then_each_ssp() -> None:
    figure = fig3(made_equal({"alexnet": {"ssp_s3": [0.1, 0.2, 0.5]}}, {"alexnet": {"ssp_s3": 8.0}}))
    assert [panel.title[:3] for panel in figure.panels] == ["(a)", "(b)", "(c)", "(d)", "(e)", "(f)"]
    assert all(panel.x_label == "virtual time, s" for panel in figure.panels)
    left, right = figure.panels[:2]
    assert [series.label for series in left.series] == ["BSP", "ASP", "average of 2 SSPs", "DSSP", "DSSP, bound=hard"]
    assert [series.label for series in right.series] == ["DSSP", "SSP s=3", "SSP s=15"]
    bsp, _, average, dssp, _ = left.series
    assert (bsp.x[-1], dssp.x[-1]) == (12.0, 8.0)  # 2 epochs of 6 s and of 4 s, whatever the learning run's own clock
    assert average.x[-1] == 12.0  # of 8 s and 4 s an epoch
    assert average.y[-1] == pytest.approx(0.5505)  # 0.5 and 0.6, the mean of the seeds 0.0005 above
    assert dssp.low is not None
    assert right.series[1].low is None


def test_a_missing_ssp_leaves_the_average_of_its_seed_empty_and_is_named() -> None:
    artefact = without(without(made_equal(), "alexnet/ssp_s15", 1), "resnet50/asp/timing", 0)
    table = fig3_table(artefact)
    assert any("NOT COMPLETE: 2 runs" in note for note in table.notes)
    assert rows_of(table)["AlexNet: average of 2 SSPs"][1] == "4.0 (1/2)"
    assert rows_of(table)["ResNet-50: ASP"][:2] == ["60.0 ± 0.1", "4.0 (1/2)"]  # the accuracy needs no time
    assert len(fig3(artefact).panels) == 6
    verdicts = {claim.key: verdict_on(PAPER, claim.key, artefact) for claim in PAPER.claims}
    judged = [key for key, verdict in verdicts.items() if verdict.verdict != NOT_RUN]
    assert judged == ["bounded", "fc_higher", "homogeneous_small"], "two are contradicted"
    assert "1 runs are missing" in verdicts["fc_fast"].because


def test_a_network_whose_learning_was_not_run_is_said_to_be_so() -> None:
    artefact = made_equal(chosen=("alexnet", "resnet50"))
    for paradigm in PARADIGMS:
        artefact = without(artefact, f"resnet50/{paradigm}", 0, 1)
    assert "not run yet" in fig3(artefact).panels[2].title
    assert rows_of(times_table(artefact))["ResNet-50"][0] == "6.00 ± 0.00"
    assert any("not run yet in place of ResNet-50" in note for note in fig3_table(artefact).notes)


def test_a_network_that_learns_nothing_here_and_thresholds_that_do_not_have_their_times() -> None:
    artefact = made_equal(epoch_s={"alexnet": {"ssp_s3": 8.0}})
    left_out = ("resnet50", "alexnet/ssp_s15")
    runs = [run for run in artefact.runs if run.label.endswith("timing") or not run.label.startswith(left_out)]
    artefact = replace(artefact, runs=runs)
    assert [panel.title[4:11] for panel in fig3(artefact).panels] == ["AlexNet"] * 2 + ["ResNet-"] * 2
    table = fig3_table(artefact)
    assert not any(name.startswith("ResNet-50") for name in rows_of(table))
    average = rows_of(table)["AlexNet: average of 1 SSPs"]
    assert average == [*rows_of(table)["AlexNet: SSP s=3"][:3], "—", "—"]
    assert rows_of(times_table(artefact))["AlexNet"][1] == "1.0000 ± 0.0000", "of both thresholds: 8 and 4 s of 6"


def test_times_on_equal_servers_and_where_they_turn_round() -> None:
    """600 updates in 180 s: a BSP step of 0.3 s, so that ASP takes as long at 0.1 s an update (4 workers)."""
    rows = rows_of(times_table(made_equal()))
    assert rows["AlexNet"] == ["6.00 ± 0.00", *["0.6667 ± 0.0000"] * 4, "7.0 ± 0.0", "100.00 ± 0.00", "10,000 ± 0"]
    assert rows["ResNet-110"][-1] == "500 ± 0"


def test_the_readings_stand_beside_each_other() -> None:
    more = {"asp/clock": [0.1, 0.3, 0.35], "asp/share": [0.1, 0.3, 0.41]}
    table = readings_table(made_equal({"resnet50": more}))
    assert [row[:5] for row in table.texts()] == [
        ["ResNet-50: BSP", "0.0500", "samples", "mean", "2.00 ± 0.00"],
        ["ResNet-50: ASP", "0.0500", "samples", "mean", "2.00 ± 0.00"],
        ["ResNet-50: ASP", "0.0500", "server_updates", "mean", "1.00 ± 0.00"],
        ["ResNet-50: ASP", "0.0500", "samples", "mean_over_workers", "2.00 ± 0.00"],
        ["ResNet-50: SSP s=3", "0.0500", "samples", "mean", "2.00 ± 0.00"],
        ["ResNet-50: DSSP", "0.0500", "samples", "mean", "2.00 ± 0.00"],
    ]
    assert [row[6] for row in table.texts()] == [
        *("0.0 ± 0.0", "19.5 ± 0.0", "-5.5 ± 0.0", "0.5 ± 0.0", "19.5 ± 0.0", "19.5 ± 0.0")
    ]
    assert table.texts()[2][7] == "— (0/2)"


def test_a_reading_of_the_rate_is_compared_with_bsp_at_that_rate() -> None:
    more = {"bsp/paper": [0.1, 0.1, 0.2], "asp/paper": [0.1, 0.4, 0.5]}
    rows = readings_table(made_equal({"alexnet": more}, chosen=("alexnet",))).texts()
    assert [(row[0], row[1], row[6]) for row in rows] == [
        ("AlexNet: BSP", "0.0500", "0.0 ± 0.0"),
        ("AlexNet: BSP", "0.0100", "0.0 ± 0.0"),
        ("AlexNet: ASP", "0.0500", "19.5 ± 0.0"),
        ("AlexNet: ASP", "0.0100", "30.0 ± 0.0"),
        ("AlexNet: SSP s=3", "0.0500", "19.5 ± 0.0"),
        ("AlexNet: DSSP", "0.0500", "19.5 ± 0.0"),
    ]


def test_ssps_of_times_alone_count_in_the_averages_time_and_not_in_its_accuracy() -> None:
    whole = made_equal(epoch_s={"resnet50": {"ssp_s3": 9.0, "ssp_s15": 5.0}})
    few = replace(whole, runs=[run for run in whole.runs if run.label != "resnet50/ssp_s15"])
    of = networks(few)["resnet50"]
    assert of.thresholds == ["ssp_s3"]
    assert of.final("ssp") == of.final("ssp_s3")
    assert of.seconds_an_epoch("ssp").values == (7.0, 7.0)


def test_readings_are_no_ssps_of_the_average() -> None:
    of = networks(made_equal({"resnet50": {"ssp_s3/clock": [0.1, 0.1, 0.1]}}))["resnet50"]
    assert of.thresholds == ["ssp_s3", "ssp_s15"]
    assert of.final("ssp").mean == pytest.approx(60.05)


# Claims: records on which each holds, and moved ones on which it fails.


judged = partial(verdict_on, PAPER)


# All reach 0.30 at their third evaluation: BSP and the SSPs at 20 s, DSSP and ASP at 10 s.
LEVEL = [0.1, 0.2, 0.30, 0.305]
FASTER = [0.1, 0.2, 0.31, 0.33]
HALVES: dict[str, Accuracies] = dict.fromkeys(CURVES, LEVEL) | {"asp": FASTER, "dssp_s3_r12": FASTER}


def test_half_the_time_on_the_mixed_cluster() -> None:
    def verdict(curves: Mapping[str, Accuracies] = HALVES, goal: float | None = 0.29, **more: Any) -> str:
        return judged("hetero_time", made_mixed(curves, goal=goal, **more)).verdict

    assert verdict() == HOLDS
    assert verdict(alone=ALONE | {"dssp_s3_r12": 3100.0}) == FAILS  # 3 % above ASP
    assert verdict(times=TIMES | {"asp": [0, 4, 8, 12]}) == FAILS  # DSSP takes 1.25 times as long
    for label in ("bsp", "ssp_s3", "ssp_s6", "ssp_s15"):
        assert verdict(alone=ALONE | {label: 3012.0}) == FAILS, label
        assert verdict(times=TIMES | {label: TIMES["asp"]}) == FAILS, label
    assert verdict(HALVES | {"dssp_s3_r12": [0.1, 0.2, 0.2, 0.25]}) == NOT_COMPARABLE, "it never arrives"
    assert verdict(goal=None) == NOT_RUN, "a target that the judged runs set judges nothing"
    assert verdict(goal=0.5) == NOT_COMPARABLE, "nobody arrives"


def test_dssp_is_more_accurate_than_the_ssps_and_bsp() -> None:
    def verdict(curves: Mapping[str, Accuracies], **more: Any) -> str:
        return judged("hetero_accuracy", made_mixed(curves, **more)).verdict

    assert verdict(HALVES) == HOLDS
    assert verdict(HALVES | {"ssp_s3": [0.1, 0.2, 0.3, 0.34]}) == HOLDS, "the SSPs are averaged"
    for label, accuracies in (("dssp_s3_r12", LEVEL), ("bsp", BETTER), ("ssp_s3", [0.1, 0.2, 0.3, 0.5])):
        assert verdict(HALVES | {label: accuracies}) == FAILS, label
    assert verdict(HALVES, seeds=(0,)) == UNDECIDED


HIGHER, LOWER, LOWEST = [0.1, 0.5, 0.7], [0.1, 0.4, 0.39], [0.1, 0.4, 0.2]
FLOOR = {"bsp": [0.1, 0.3, 0.405], "asp": LOWER}
ORDER = {"bsp": 3.0, "ssp_s3": 3.1, "ssp_s15": 3.1, "dssp": 3.2, "asp": 3.3}
RESNETS = ("resnet50", "resnet110")


@pytest.mark.parametrize(
    ("key", "network", "holds", "fails"),
    [
        ("fc_fast", "alexnet", ({}, {}), [({}, {"asp": 9.0}), ({}, {"dssp": 9.0}), ({}, {"ssp_s3": 99.0})]),
        (
            "fc_asp_floor",
            "alexnet",
            (FLOOR, {}),
            [
                ({}, {}),
                (FLOOR | {"dssp": [0.1, 0.2, 0.2]}, {}),
                (FLOOR | {"ssp_s3": [0.1, 0.2, 0.2], "ssp_s15": [0.1, 0.4, 0.5]}, {}),
                (FLOOR | {"bsp": [0.1, 0.1, 0.25]}, {}),
            ],
        ),
        (
            "fc_dssp_ge_ssp",
            "alexnet",
            ({"dssp": [0.1, 0.4, 0.605]}, {"dssp": 3.8}),  # half a point higher, 5 % faster
            [({}, {"dssp": 5.0}), ({}, {"dssp": 3.0}), ({"dssp": HIGHER}, {}), ({"dssp": [0.1, 0.4, 0.58]}, {})],
        ),
        (
            "conv_bsp_floor",
            RESNETS,
            ({"dssp": LOWER}, {"dssp": 5.0}),  # mostly: the two others are higher and faster
            [({}, dict.fromkeys(EPOCH_S, 6.0) | {"bsp": 2.0}), ({"dssp": LOWEST, "asp": LOWEST}, {})],
        ),
        (
            "homogeneous_small",
            "resnet110",
            ({"dssp": [0.1, 0.4, 0.61]}, {"dssp": 4.1}),
            [
                ({"dssp": HIGHER}, {}),
                ({"dssp": [0.1, 0.3, 0.6]}, {}),  # it comes later to the same accuracy
                ({}, {"dssp": 4.3}),
                ({}, {"dssp": 3.7}),
                ({"ssp_s15": [0.1, 0.4, 0.5]}, {}),
            ],
        ),
    ],
)
def test_a_claim_of_figure_3_holds_and_fails(key, network, holds, fails) -> None:
    def verdict(differs: tuple[Mapping[str, Accuracies], Mapping[str, float]]) -> str:
        learned, seconds = differs
        chosen = (network,) if isinstance(network, str) else network
        networks_of = dict.fromkeys(chosen, learned), dict.fromkeys(chosen, seconds)
        return judged(key, made_equal(*networks_of, chosen=chosen)).verdict

    assert verdict(holds) == HOLDS
    assert [verdict(case) for case in fails] == [FAILS] * len(fails)


def test_a_server_that_takes_no_time_cannot_judge_who_is_fastest() -> None:
    assert judged("conv_bsp_throughput", made_equal(epoch_s=dict.fromkeys(RESNETS, ORDER))).verdict == NOT_COMPARABLE


# As it is asked for.


def test_figure_3_comes_with_its_tables() -> None:
    artefact = made_equal({"resnet50": {"asp/clock": [0.1, 0.4, 0.5]}})
    assert list(PAPER.shows["fig3"](artefact)) == ["", "table", "times", "readings"]
    without = replace(artefact, runs=[run for run in artefact.runs if not run.label.endswith("clock")])
    assert list(PAPER.shows["fig3"](without)) == ["", "table", "times"], "no table without rows"
