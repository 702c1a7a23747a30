"""The ranking of a plan's settings: the order, the numbers, and the remarks on runs that they leave out."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from syncline.operations.ranking import ranking, short_names, spread
from syncline.operations.states import FAILED, FINISHED, LEFT, Outcome, RunState
from syncline.records.plans import PlannedRun

MADE = Outcome("accuracy", False, None, 0.5, 0.6, None, 10.0, "virtual", 100, 3200, has_diverged=False)
TIMED = replace(MADE, metric=None, final=math.nan, best=math.nan)
DIVERGED = replace(MADE, has_diverged=True)


def table(given: dict[str, Sequence[Outcome | str]], width: int = 80, most: int | None = None) -> list[str]:
    """The lines of a plan with these labels: of each run, one a seed, what it came to, or its state."""
    runs, states = [], {}
    for label, made in given.items():
        for seed, came_to in enumerate(made):
            identity = f"{label}-{seed}"
            runs.append(PlannedRun(label, seed, identity, [f"strategy={label}", f"seed={seed}"]))
            is_made = isinstance(came_to, Outcome)
            states[identity] = RunState(FINISHED, outcome=came_to) if is_made else RunState(str(came_to))
    return ranking(runs, states, width, most).splitlines()


def order(lines: Sequence[str]) -> list[str]:
    """The names of the settings, as they stand above the legend; remarks are indented."""
    rows = itertools.takewhile(lambda line: not line.startswith(("mean±", "and ")), lines[2:])
    return [line.split()[0] for line in rows if not line.startswith(" ")]


def test_runs_that_differ_only_in_their_seed_are_a_row_with_mean_deviation_and_n() -> None:
    seeds = [replace(MADE, final=final, best=best) for final, best in ((0.5, 0.7), (0.6, 0.7), (0.7, 0.7))]
    title, header, row, legend = table({"bsp": seeds})
    assert title == "ranked by final accuracy, highest first; virtual seconds"
    assert header.split() == ["setting", "n", "final", "best", "seconds", "updates"]
    assert row.split() == ["bsp", "3", "0.600±0.100", "0.700±0.000", "10.0", "100"]
    assert legend == "mean±sample standard deviation of n runs, without those that diverged"


def test_a_run_that_a_sweep_names_twice_counts_once_and_one_seed_has_no_deviation() -> None:
    run = PlannedRun("bsp", 0, "bsp-0", ["strategy=bsp", "seed=0"])
    lines = ranking([run, run], {"bsp-0": RunState(FINISHED, outcome=MADE)}, 80).splitlines()
    assert lines[2].split() == ["bsp", "1", "0.500", "0.600", "10.0", "100"]


@pytest.mark.parametrize(("is_lower", "first"), [(False, "high"), (True, "low")])
def test_what_is_better_depends_on_the_metric(is_lower: bool, first: str) -> None:
    made = replace(MADE, lower_is_better=is_lower)
    lines = table({name: [replace(made, final=final)] for name, final in (("high", 0.9), ("low", 0.1))})
    assert order(lines)[0] == first
    assert ("lowest" if first == "low" else "highest") in lines[0]


def test_with_a_target_more_runs_that_reach_it_come_first_then_less_time() -> None:
    def reached(*times: float | None) -> list[Outcome]:
        return [replace(MADE, target=0.45, reached_s=time_s) for time_s in times]

    given = {
        "never-but-good": [replace(run, final=0.44) for run in reached(None, None)],
        "never": [replace(run, final=0.3) for run in reached(None, None)],
        "half": reached(1.0, None),
        "slow": reached(9.0, 7.0),
        "quick": reached(5.0, 4.0),
    }
    lines = table(given)
    assert order(lines) == ["quick", "slow", "half", "never-but-good", "never"]
    assert lines[0] == "ranked by virtual seconds to accuracy 0.45"
    cells = {line.split()[0]: " ".join(line.split()[4:-2]) for line in lines[2:7]}
    assert (cells["quick"], cells["half"], cells["never"]) == ("2/2 4.50±0.71", "1/2 1.00", "0/2")
    assert "to 0.45: how many runs reached it, and the mean of these" in " ".join(lines[7:])


def test_diverged_and_failed_runs_are_said_and_left_out_of_the_means() -> None:
    given = {
        "best-of-three": [replace(MADE, final=0.99), DIVERGED, FAILED],
        "sound": [MADE, MADE],
        "hopeless": [DIVERGED, DIVERGED],
        "open": [LEFT, FAILED],
    }
    lines = table(given)
    assert order(lines) == ["sound", "best-of-three", "hopeless"]
    rows = {line.split()[0]: (line.split(), under) for line, under in itertools.pairwise(lines[:7])}
    assert rows["best-of-three"][0][1:3] == ["1", "0.990"]
    assert rows["best-of-three"][1] == "  1 of 3 runs diverged, 1 of 3 runs failed"
    assert rows["hopeless"][0][1:] == ["0", "-", "-", "-", "-"]
    assert rows["hopeless"][1] == "  2 of 2 runs diverged"
    assert lines[-1] == "open: 1 of 2 runs failed, 1 of 2 runs not finished"


def test_times_alone_are_ranked_by_the_samples_a_second() -> None:
    """In a table of their own beside runs that learn. An update of BSP takes the gradients of all workers."""
    bsp = replace(TIMED, updates=25)
    quick = replace(TIMED, time_s=5.0)
    lines = table({"asp": [TIMED], "bsp": [replace(bsp, time_s=8.0)], "quick": [quick], "learned": [MADE]})
    first, second = " \n".join(lines).split(" \n \n")
    assert first.splitlines()[0].strip() == "ranked by samples used a virtual second"
    assert [line.split() for line in first.splitlines()[1:5]] == [
        ["setting", "n", "samples/second", "seconds/update", "seconds", "updates"],
        ["quick", "1", "640.0", "0.0500", "5.00", "100"],
        ["bsp", "1", "400.0", "0.320", "8.00", "25"],
        ["asp", "1", "320.0", "0.100", "10.0", "100"],
    ]
    assert second.startswith("ranked by final accuracy")


def test_while_nothing_is_finished_there_is_no_table() -> None:
    assert table({"bsp": [LEFT, FAILED]}) == []


def test_runs_of_a_label_that_differ_in_more_than_the_seed_are_settings_of_their_own() -> None:
    """As of an experiment whose grid is made with several rates."""
    runs = [
        PlannedRun("BSP", seed, f"{rate}-{seed}", ["strategy=bsp", f"optimizer.lr={rate}", f"seed={seed}"])
        for rate in (0.1, 0.2)
        for seed in range(2)
    ]
    found = ranking(runs, {run.identity: RunState(FINISHED, outcome=MADE) for run in runs}, 80).splitlines()
    assert [line[:20].strip() for line in found[2:-1]] == ["BSP optimizer.lr=0.1", "BSP optimizer.lr=0.2"]


def test_the_best_alone_are_listed_where_there_are_many() -> None:
    lines = table({f"s{number}": [replace(MADE, final=number / 10)] for number in range(5)}, most=2)
    assert order(lines) == ["s4", "s3"]
    assert lines[-2] == "and 3 more settings"


@pytest.mark.parametrize("width", [60, 200])
def test_no_line_is_too_long_and_nothing_is_lost(width: int) -> None:
    names = ["bsp", "strategy=dssp,cluster.network.bandwidth_gbps=1.25", "a label of several words that is long indeed"]
    reached = [replace(MADE, target=0.45, reached_s=1234.5 + seed, time_s=123456.0) for seed in range(3)]
    given: dict[str, Sequence[Outcome | str]] = {name: [*reached, DIVERGED] for name in names}
    lines = table(given, width)
    assert max(map(len, lines)) <= width
    assert Counter(" ".join(lines).split()) == Counter(" ".join(table(given, 1000)).split())


def test_the_keys_of_a_sweep_are_its_title() -> None:
    names = ["strategy=bsp optimizer.lr=0.1", "strategy=asp optimizer.lr=0.2"]
    assert short_names(names) == ("strategy optimizer.lr", ["bsp 0.1", "asp 0.2"])
    for others in (["bsp"], ["a=1", "b=1"], ["a=1", "bsp"], ["a=1 x"]):
        assert short_names(others) == ("setting", others)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], "-"),
        ([0.0], "0.00"),
        ([0.01234], "0.0123"),
        ([19.44, 19.64], "19.5±0.1"),
        ([6170.0, 6172.0], "6,171±1"),
        ([3e9], "3e+09"),
        ([math.nan], "nan"),
    ],
)
def test_numbers_have_three_digits(values: list[float], text: str) -> None:
    assert spread(values) == text
