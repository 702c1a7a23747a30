"""Races in words and side by side, from answers to known truths."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from studies.racing import RaceLab, Truth, race

from reports.exhibits import ArtefactStore, Exhibit
from reports.figures import Figure
from reports.grids import phases, workers
from reports.races import cases, of_pushes, of_rules, race_tables, together
from reports.site import study_sections
from reports.studies import study_exhibit
from reports.tables import Table
from syncline.operations.studies import answer_lines
from syncline.records.plans import plan_path
from syncline.records.store import RecordError
from syncline.records.studies import WrittenStudy, study_path, write_study
from syncline.studies.race import Elsewhere

HERE = {"asp": Truth(10.0, noise=0.02), "k_sync k=1": Truth(16.0, noise=0.02), "k_sync k=2": Truth(13.0, noise=0.02)}
THERE = {"asp": Truth(40.0, noise=0.02), "k_sync k=1": Truth(20.0, noise=0.02), "k_sync k=2": Truth(300.0)}
NOISY = "{name:shifted_exponential,shift:0.75,scale:0.25}"


def study(truths: dict[str, Truth], name: str, **about: Any) -> WrittenStudy:
    declared = race(truths, **about)
    answer = asdict(RaceLab(truths).answer(declared).result)
    return WrittenStudy("race", name, "laptop", name, ["race"], asdict(declared), [], None, answer)


def table(item: object) -> Table:
    assert isinstance(item, Table)
    return item


def answer_of(written: WrittenStudy) -> dict[str, Any]:
    assert written.answer is not None
    return written.answer


def test_a_strategy_has_the_time_of_its_soonest_entrant_and_none_where_it_was_not_judged() -> None:
    here, there = cases([answer_of(study(HERE, "here")), answer_of(study(THERE, "there", within=1.5))])
    assert here["asp"] == pytest.approx(10.0, rel=0.1)
    assert here["k_sync"] == pytest.approx(13.0, rel=0.1)
    assert there["asp"] == float("inf")  # twice as long in tuning: it was not judged
    assert there["k_sync"] == pytest.approx(20.0, rel=0.1)


def test_several_targets_are_several_cases() -> None:
    one, half = cases([answer_of(study(HERE, "here", targets=(0.45,)))])
    assert half["asp"] == pytest.approx(one["asp"] / 2.0)


def test_the_scores_of_one_race_are_of_each_of_its_strategies() -> None:
    rows = {row[0]: row[1:] for row in table(together([study(HERE, "here")])[""]).rows}
    assert rows["asp"] == [1.0, 1.0]
    assert rows["k_sync"] == [pytest.approx(1.3, rel=0.1), pytest.approx(0.9, rel=0.1)]


def raced(name: str, seconds: dict[str, float]) -> WrittenStudy:
    """A race of pushes: of `... steps=N COMPRESS`."""
    written = study({label: Truth(each, noise=0.01) for label, each in seconds.items()}, name, within=3.0)
    for standing in answer_of(written)["standings"]:
        words = standing["label"].split()
        steps, compress = (word for word in words if word.startswith("steps=") or word in ("none", "topk"))
        standing["overrides"] = [f"local.{steps}", f"compress={compress}"]
    return written


def test_two_races_on_one_cluster_are_columns_of_their_own_in_the_map() -> None:
    """Each relative to its own soonest."""
    studies = [
        raced("mlp on mnist, cluster lab", {"asp steps=1 none": 20.0, "asp steps=8 none": 10.0}),
        raced(
            "lenet on mnist, cluster lab",
            {"asp steps=1 none": 10.0, "asp steps=8 none": 20.0, "bsp steps=8 none": 25.0},
        ),
    ]
    shown = table(of_pushes(studies)[""])
    assert [heading.title for heading in shown.columns[2:]] == [
        *("mlp on mnist, cluster lab, accuracy 0.9, H = 1", "mlp on mnist, cluster lab, accuracy 0.9, H = 8"),
        *("lenet on mnist, cluster lab, accuracy 0.9, H = 1", "lenet on mnist, cluster lab, accuracy 0.9, H = 8"),
    ]
    rows = {row[0]: row[2:] for row in shown.rows}
    assert rows["asp"] == [pytest.approx(2.0, rel=0.05), 1.0, 1.0, pytest.approx(2.0, rel=0.05)]
    assert rows["bsp"] == [None, None, None, pytest.approx(2.5, rel=0.05)]
    missed = raced("mlp on mnist, cluster far", {"asp steps=1 none": 10.0, "asp steps=8 none": 11.0})
    for standing in answer_of(missed)["standings"]:
        standing["seconds"] = answer_of(missed)["length_s"]
    assert len(table(of_pushes([*studies, missed])[""]).columns) == 6
    with pytest.raises(RecordError, match="has reached its target"):
        of_pushes([missed])


def test_races_of_update_rules_are_a_table_of_their_own_and_not_among_those_of_strategies() -> None:
    seconds = {"asp mean": 20.0, "asp gap_aware": 10.0, "dssp mean": 15.0}
    written = study({label: Truth(each, noise=0.01) for label, each in seconds.items()}, "lenet", within=3.0)
    for standing in answer_of(written)["standings"]:
        standing["overrides"] = [f"update={standing['label'].split()[1]}"]
    shown = table(of_rules([written, study(HERE, "here")])[""])
    assert [row[:2] for row in shown.rows] == [["gap_aware", "asp"], ["mean", "dssp"], ["mean", "asp"]]
    assert str(shown.rows[0][3]).startswith("1")
    assert [heading.title for heading in shown.columns][2] == "lenet: accuracy 0.9, rate"
    for alone in (together, of_pushes):
        with pytest.raises(RecordError):
            alone([written])
    with pytest.raises(RecordError, match="no race of update rules"):
        of_rules([study(HERE, "here")])


def test_without_an_answer_there_is_nothing_side_by_side() -> None:
    with pytest.raises(RecordError, match="no race has its answer"):
        together([])


class NothingWritten:
    """Takes the place of the writer of items."""

    def submit(self, exhibit: Exhibit, stem: str) -> list[Any]:
        return []


def test_a_race_whose_judged_runs_are_gone_is_named_and_the_pages_go_on(tmp_path: Path) -> None:
    for stem in ("here", "there"):
        write_study(study_path(tmp_path, stem), study(HERE, stem))
        plan_path(tmp_path, stem).parent.mkdir(exist_ok=True)
        plan = {"name": stem, "scale": "laptop", "command": ["race"], "report": {}, "runs": []}
        plan_path(tmp_path, stem).write_text(json.dumps(plan))
    line = "race here: asp has no finished run that judges; its command makes it again"
    with pytest.raises(RecordError, match=line):
        study_exhibit(study_path(tmp_path, "here"))
    shown = study_sections(ArtefactStore(tmp_path, "laptop"), NothingWritten())  # type: ignore[arg-type]
    sections = {each.name: each.missing for each in shown}
    assert sections == {"races-laptop": "", "here": line, "there": line.replace("here", "there")}


def test_the_tables_have_every_entrant_once_and_the_words_name_them() -> None:
    written = study(THERE, "there", around=(Elsewhere("as it is", ()), Elsewhere("slower", ("x=1",))))
    answer, words = answer_of(written), "\n".join(answer_lines(written, 200))
    assert answer["sentence"] in words
    assert words.count("the first one as real processes") == 1
    assert "syncline report study there" in words
    elsewhere = answer_lines(replace(written, command=["race", "results='/x y'"]), 200)
    assert "  syncline report study there --results '/x y'" in elsewhere
    tables = race_tables(answer)
    assert list(tables) == ["order", "around", "left"]
    named = [row[0] for row in (*tables["order"].rows, *tables["left"].rows)]
    assert sorted(map(str, named)) == sorted(THERE)
    assert [row[0] for row in tables["around"].rows] == ["as it is", "slower"]


def on_cluster(truths: dict[str, Truth], *overrides: str, name: str = "mlp on digits", **about: Any) -> WrittenStudy:
    written = study(truths, name, **about)
    for each in (*answer_of(written)["standings"], *written.declaration["entrants"]):
        each["overrides"] = [*each["overrides"], *overrides]
    return written


def slowest(truths: dict[str, Truth], times: int, jitter: str, **about: Any) -> WrittenStudy:
    return on_cluster(truths, f"scenario.slow={{7:{times}}}", f"cluster.jitter={jitter}", **about)


def test_a_grid_names_the_first_at_each_noise_and_slowest_worker() -> None:
    made = phases([slowest(THERE, 8, NOISY), slowest(HERE, 1, "null"), slowest(HERE, 8, "null")])
    shown = table(made[""])
    assert [heading.title for heading in shown.columns] == ["noise", "one 1 times slower", "one 8 times slower"]
    assert [row[0] for row in shown.rows] == ["0", "0.25"]  # an exponential part of 0.25 beside 0.75
    assert [str(cell).partition(" (")[0] for cell in shown.rows[0][1:]] == ["asp", "asp"]
    assert shown.rows[1][1] is None  # no race there
    assert str(shown.rows[1][2]).startswith("k_sync k=1 (")


def test_a_curve_is_of_the_soonest_entrant_of_a_strategy_where_one_was_judged() -> None:
    made = phases([slowest(HERE, 1, "null"), slowest(THERE, 8, "null", within=1.5)])
    figure = made["figure"]
    assert isinstance(figure, Figure)
    (panel,) = figure.panels
    curves = {series.label: series for series in panel.series}
    assert panel.categories == ["1", "8"]
    assert [*curves["k_sync"].x] == [0.0, 1.0]
    assert curves["k_sync"].y == pytest.approx([13.0, 20.0], rel=0.1)
    assert [*curves["asp"].x] == [0.0]  # twice as long in tuning there: it was not judged


def test_two_trainings_and_two_targets_are_rows_of_their_own() -> None:
    here = [slowest(HERE, times, "null") for times in (1, 8)]
    there = [slowest(THERE, times, "null", name="mlp on mnist") for times in (1, 8)]
    easier = slowest(HERE, 8, "null")
    answer_of(easier)["target"] = 0.5
    shown = table(phases([*here, *there, easier])[""])
    assert [row[0] for row in shown.rows] == [
        *(
            f"mlp on {data}: accuracy {target}, noise 0"
            for data, target in (("digits", 0.5), ("digits", 0.9), ("mnist", 0.9))
        )
    ]
    assert [str(cell).split()[0] for cell in shown.rows[1][1:]] == ["asp", "asp"]
    assert [str(cell).split(" (")[0] for cell in shown.rows[2][1:]] == ["k_sync k=1", "k_sync k=1"]


def test_other_trainings_of_one_name_are_rows_and_columns_of_their_own() -> None:
    batches = [slowest(HERE, 8, "null"), slowest(HERE, 1, "null")]
    batches += [on_cluster(HERE, "scenario.slow={7:8}", "cluster.jitter=null", "batch_size=64", "epochs=9")]
    shown = table(phases(batches)[""])
    assert [row[0].partition(":")[0] for row in shown.rows] == ["mlp on digits batch_size=64", "mlp on digits"]
    alone = [on_cluster(HERE, name="mlp on digits lab"), on_cluster(HERE, "batch_size=64", name="mlp on digits lab")]
    assert [heading.title for heading in table(together(alone)[""]).columns[1:3]] == ["—", "batch_size=64"]


def test_races_that_differ_in_noise_alone_need_no_slow_worker() -> None:
    shown = table(phases([on_cluster(HERE, f"cluster.jitter={jitter}") for jitter in ("null", NOISY)])[""])
    assert [heading.title for heading in shown.columns] == ["noise", "one 1 times slower"]
    assert [row[0] for row in shown.rows] == ["0", "0.25"]


def test_races_that_differ_in_the_slow_worker_alone_have_the_noise_of_their_cluster() -> None:
    shown = table(phases([on_cluster(HERE, f"scenario.slow={{7:{times}}}") for times in (1, 8)])[""])
    assert [row[0] for row in shown.rows] == ["—"]
    assert len(shown.columns) == 3


def test_a_number_of_workers_that_is_not_known_makes_no_grid() -> None:
    given = [on_cluster(HERE), on_cluster(HERE, "cluster.workers=8")]
    assert table(together(given)[""]).columns
    with pytest.raises(RecordError, match="differ in the number of workers"):
        workers(given)


def test_a_race_that_says_nothing_of_its_cluster_is_in_no_grid_of_those_that_do() -> None:
    grid = [slowest(HERE, 1, "null"), slowest(HERE, 8, "null")]
    given = [*grid, on_cluster(HERE)]
    assert [row[0] for row in table(phases(given)[""]).rows] == ["0"]
    assert table(together(given)[""]).columns[1].title == "mlp on digits"


def test_races_differ_in_the_number_of_workers() -> None:
    shown = table(workers([on_cluster(HERE, f"cluster.workers={number}") for number in (64, 8)])[""])
    assert [heading.title for heading in shown.columns[1:]] == ["8 workers", "64 workers"]


def test_the_races_of_a_grid_are_shown_there_alone() -> None:
    grid = [slowest(HERE, 1, "null"), slowest(HERE, 8, "null")]
    other = slowest(HERE, 4, "null", name="mlp on mnist")  # one race alone is no grid
    assert [heading.title for heading in table(together([*grid, other])[""]).columns] == [
        "race",
        "mlp on mnist",
        "score",
    ]
    with pytest.raises(RecordError, match="no race has its answer"):
        together(grid)
    for show in (phases, workers):
        with pytest.raises(RecordError, match="no races of one training differ"):
            show([other])
