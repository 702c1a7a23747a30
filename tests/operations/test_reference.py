"""python -m syncline reference: finished runs are added once, nothing there changes, and what is there is listed."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest
from operations.planned import finish, identity_of, lock, summary, write_plan

from runners.commands import main
from syncline.records.plans import WrittenPlan, read_plan
from syncline.records.reference import Reference
from syncline.records.sources import ResultsFolder
from syncline.records.store import FINISHED, read_run_config, status
from syncline.records.studies import WrittenStudy, read_study, study_path, write_study
from syncline.records.writer import RecordWriter

Said, AsJson = Callable[..., str], Callable[..., Any]
TEN = [identity_of(seed) for seed in range(10)]


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    return tmp_path / "reference"


@pytest.fixture
def add(as_json: AsJson, reference: Path) -> Callable[..., Any]:
    """Add plans; what was said of each."""
    return lambda *names: as_json("reference", "add", *names, "--reference", str(reference))["plans"]


def stored_plan(reference: Path) -> WrittenPlan:
    return read_plan(reference / "smoke/plans/paper-table-smoke.json")


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_finished_runs_of_a_plan_are_added_and_adding_twice_adds_nothing(
    add: Callable[..., Any], results: Path, reference: Path
) -> None:
    (said,) = add("paper/table")
    assert said == {
        "plan": "paper-table-smoke", "added": 2, "there": 0, "left": 4, "differing": [], "note": "",
    }  # fmt: skip
    before = files(reference)
    (again,) = add("paper/table")
    assert (again["added"], again["there"]) == (0, 2)
    assert files(reference) == before
    finish(results, 5)
    (later,) = add("paper/table")
    assert (later["added"], later["there"]) == (1, 2)
    after = files(reference)
    assert {path: after[path] for path in before} == before, "nothing that was there has changed"
    assert len(after) == len(before) + 1
    assert Reference(reference / "smoke").identities == [TEN[0], TEN[1], TEN[5]]


def test_what_is_restored_is_what_was_added(
    add: Callable[..., Any], results: Path, reference: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add("paper/table")
    clone = tmp_path / "clone"

    def restore(plan: str, *more: str) -> int:
        return main(["reference", "restore", plan, "--reference", str(reference), "--results", str(clone), *more])

    capsys.readouterr()
    assert restore("paper-table-smoke", "--json") == 0
    (told,) = json.loads(capsys.readouterr().out)["plans"]
    assert told == {"plan": "paper-table-smoke", "restored": 2, "there": 0, "missing": 4}
    for identity in (TEN[0], TEN[1]):
        old, new = ResultsFolder(results).record(identity), ResultsFolder(clone).record(identity)
        assert old is not None
        assert new is not None
        assert (new.summary(), new.config(), new.metrics()) == (old.summary(), old.config(), old.metrics())
        assert int(new.date()) == int(old.date())
    before = files(clone)
    finish(clone, 2)
    assert restore("all") == 0
    assert {path: content for path, content in files(clone).items() if path in before} == before
    assert restore("paper-table-laptop") == 1


def test_restoring_goes_on_after_an_interruption_and_leaves_a_run_that_is_being_made(
    add: Callable[..., Any], as_json: AsJson, results: Path, reference: Path
) -> None:
    add("paper/table")
    (results / TEN[0] / "summary.json").unlink()
    (results / TEN[0] / "log.txt").touch()
    lock(results, 1)
    shutil.rmtree(results / TEN[1])
    (told,) = as_json("reference", "restore", "paper/table", "--reference", str(reference))["plans"]
    assert (told["restored"], told["there"]) == (1, 1)
    assert status(results / TEN[0]) == FINISHED
    assert not (results / TEN[0] / "log.txt").exists()
    assert not (results / TEN[1]).exists()


def test_a_restored_run_has_the_measured_durations_that_its_config_names(
    add: Callable[..., Any], as_json: AsJson, results: Path, reference: Path, tmp_path: Path
) -> None:
    measured, content = tmp_path / "measured.txt", b"0.25\n0.5\n"
    measured.write_bytes(content)
    jitter = {"name": "trace", "path": str(measured), "content": md5(content).hexdigest()}
    with RecordWriter(results / TEN[5], {"cluster": {"jitter": jitter}}, with_events=False) as record:
        record.finish(summary())
    add("paper/table")
    before = files(results / TEN[5])
    shutil.rmtree(results / TEN[5])
    as_json("reference", "restore", "paper/table", "--reference", str(reference))
    assert set(files(results / TEN[5])) == set(before)
    config = read_run_config(results / TEN[5])
    assert Path(config["cluster"]["jitter"]["path"]).read_bytes() == content


def test_a_run_with_other_numbers_is_named_and_stays(
    said: Said, add: Callable[..., Any], results: Path, reference: Path
) -> None:
    add("paper/table")
    before = files(reference)
    finish(results, 0, wall_s=99.0)
    assert add("paper/table")[0]["differing"] == [], "wall time is no result"
    finish(results, 0, time_s=2.0)
    text = said("reference", "add", "paper/table", "--reference", str(reference))
    assert f"{TEN[0]}: the reference has other numbers, and keeps them" in text.splitlines()
    assert files(reference) == before


def test_a_plan_is_replaced_by_a_finished_one_that_has_more(
    add: Callable[..., Any], results: Path, reference: Path
) -> None:
    write_plan(results, "paper-table-smoke", [5])
    assert add("paper/table")[0]["note"] == "; nothing to show, so no plan"
    assert files(reference) == {}
    for label in ("b", "a"):
        write_plan(results, "paper-table-smoke", [0, 1], labels=(label,))
        add("paper/table")
        assert {run.label for run in stored_plan(reference).runs} == {label}, "a plan of the same runs is renewed"
    write_plan(results, "paper-table-smoke", [0])
    add("paper/table")
    assert {*stored_plan(reference).once()} == {TEN[0], TEN[1]}, "a part of it does not take its place"
    write_plan(results, "paper-table-smoke", [0, 7])
    (said,) = add("paper/table")
    assert {*stored_plan(reference).once()} == {TEN[0], TEN[1]}
    assert said["note"] == "; the plan there stays until this one is finished"
    finish(results, 7)
    add("paper/table")
    assert {*stored_plan(reference).once()} == {TEN[0], TEN[1], TEN[7]}, "a further seed of its row stays"
    finish(results, 8)
    write_plan(results, "paper-table-smoke", [8], labels=("b",))
    add("paper/table")
    assert {*stored_plan(reference).once()} == {TEN[8]}, "it has other rows"


def test_a_plan_with_fewer_runs_brings_its_report_and_further_seeds_stay(
    add: Callable[..., Any], results: Path, reference: Path
) -> None:
    def planned() -> tuple[Any, set[tuple[str, str]]]:
        plan = stored_plan(reference)
        return plan.report.get("targets"), {(run.label, run.identity) for run in plan.runs}

    write_plan(results, "paper-table-smoke", [0, 1], report={"targets": [0.8]})
    add("paper/table")
    write_plan(results, "paper-table-smoke", [0], report={"targets": [0.9]})
    (said,) = add("paper/table")
    assert (said["note"], planned()) == ("", ([0.9], {("a", TEN[0]), ("a", TEN[1])}))
    write_plan(results, "paper-table-smoke", [0], report={"targets": [0.9]}, labels=("b",))
    (said,) = add("paper/table")
    stays = "; the plan there, with another report or other labels, stays: it has rows that this one lacks"
    assert (said["note"], planned()) == (stays, ([0.9], {("a", TEN[0]), ("a", TEN[1])})), "a's further seed would go"
    (reference / "smoke/plans/paper-table-smoke.json").unlink()
    write_plan(results, "paper-table-smoke", [0, 1], report={"targets": [0.9]}, labels=("a", "b"))
    add("paper/table")
    write_plan(results, "paper-table-smoke", [0], report={"targets": [0.9]})
    assert add("paper/table")[0]["note"] == "", "a part of it"
    write_plan(results, "paper-table-smoke", [0], report={"targets": [0.7]})
    (said,) = add("paper/table")
    assert (said["note"], planned()) == (stays, ([0.9], {("a", TEN[0]), ("b", TEN[1])})), "row b would go"


def test_of_a_plan_that_a_study_makes_the_stage_under_way_is_left_out(
    add: Callable[..., Any], results: Path, reference: Path
) -> None:
    def judged(*stages: int, present: int) -> None:
        done = [{"name": "look", "num_trials": num} for num in stages]
        under_way = {"name": "look", "num_trials": present}
        study = WrittenStudy("judge", "paper/table", "smoke", "paper-table-smoke", [], {}, done, under_way, None)
        write_study(study_path(results, "judge-paper-table-smoke"), study)

    write_plan(results, "paper-table-smoke", [0, 1, 5, 7])  # 7 is not finished
    judged(2, present=2)
    (said,) = add("paper/table")
    assert ([*stored_plan(reference).once()], said["left"]) == ([TEN[0], TEN[1]], 0)
    judged(present=4)
    (said,) = add("paper/table")
    assert ([*stored_plan(reference).once()], said["left"]) == ([TEN[0], TEN[1]], 2), "the first stage is the plan"
    judged(1, present=2)
    (said,) = add("paper/table")
    assert said["left"] == 2, "the plan has more than the study's stages: it is another command's"


def test_a_plan_has_no_folder_of_this_machine(add: Callable[..., Any], results: Path, reference: Path) -> None:
    path = write_plan(
        results, "paper-table-smoke", [0], command=["+experiment=paper/table", "scale=smoke", "results=/tmp/x"]
    )
    content = json.loads(path.read_text())
    content["runs"][0]["overrides"] = ["strategy=bsp", "results=/tmp/x", "jobs=2"]
    path.write_text(json.dumps(content))
    add("all")
    stored = stored_plan(reference)
    assert stored.command == ["+experiment=paper/table", "scale=smoke"]
    assert [run.overrides for run in stored.runs] == [["strategy=bsp"]]


def test_studies_are_copied_with_all(said: Said, results: Path, reference: Path) -> None:
    path = study_path(results, "dssp-fig4")
    study = WrittenStudy("tune", "dssp/fig4", "smoke", "dssp-fig4", ["tune", "results=/x"], {}, [], None, None)
    write_study(path, study)
    words = ("reference", "add", "all", "--reference", str(reference))
    assert "study dssp-fig4: copied" in said(*words)
    assert "study" not in said(*words)
    study = replace(study, answer={"value": 0.2})
    write_study(path, study)
    assert "study dssp-fig4: copied" in said(*words)
    assert read_study(reference / "studies/dssp-fig4.json") == replace(study, command=["tune"])


def test_a_broken_study_is_named_and_stops_nothing(
    results: Path, reference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study_path(results, "dssp-fig4").parent.mkdir()
    study_path(results, "dssp-fig4").write_text("{")
    capsys.readouterr()
    assert main(["reference", "add", "all", "--reference", str(reference), "--results", str(results)]) == 0
    said, warned = capsys.readouterr()
    assert "paper-table-smoke: 2 runs added" in said
    assert warned.count("left out: ") == warned.count("dssp-fig4.json: broken study") == 1


def test_a_study_of_judging_stands_for_its_plan(as_json: AsJson, results: Path, reference: Path) -> None:
    study = WrittenStudy("judge", "paper/table", "smoke", "paper-table-smoke", [], {}, [], None, {})
    write_study(study_path(results, "judge-paper-table-smoke"), study)
    words = ("judge-paper-table-smoke", "--reference", str(reference))
    assert as_json("reference", "add", *words)["studies"] == ["judge-paper-table-smoke"]
    (told,) = as_json("reference", "restore", *words)["plans"]
    assert (told["plan"], told["there"]) == ("paper-table-smoke", 2)


def test_a_study_without_a_scale_is_left_out_as_its_plan_is(as_json: AsJson, results: Path, reference: Path) -> None:
    write_plan(results, "tune-01234567", [0], scale="")
    study = WrittenStudy("tune", "sweep", "", "tune-01234567", ["tune"], {}, [], None, {"value": 0.2})
    write_study(study_path(results, "tune-01234567"), study)
    content = as_json("reference", "add", "all", "--reference", str(reference))
    assert ([plan["plan"] for plan in content["plans"]], content["studies"]) == (["paper-table-smoke"], [])
    assert not (reference / "studies").exists()


def test_a_study_stays_until_there_is_one_that_is_as_far(
    said: Said, as_json: AsJson, results: Path, reference: Path
) -> None:
    name, words = "judge-paper-table-smoke", ("reference", "add", "paper/table", "--reference", str(reference))
    look = {"name": "look", "num_trials": 1}

    def judged(*stages: dict[str, Any], looks: tuple[int, ...] = (5, 10), answer: Any = None) -> str:
        told = ("judge", "paper/table", "smoke", "paper-table-smoke", [], {"looks": list(looks)}, [*stages], None)
        write_study(study_path(results, name), WrittenStudy(*told, answer))
        lines = said(*words).splitlines()
        return "".join(line.removeprefix(f"study {name}: ") for line in lines if line.startswith("study"))

    assert judged(look) == "copied"
    assert judged() == "the one there stays, with more stages"
    assert judged(looks=(3, 6)) == "copied", "its stages are others"
    assert judged(look, looks=(3, 6), answer={"claims": []}) == "copied"
    before = files(reference)
    assert judged(look, look, looks=(3, 6, 9)) == "the one there stays, with its answer"
    content = as_json(*words)
    assert (content["studies"], content["kept"]) == ([], {name: "the one there stays, with its answer"})
    assert files(reference) == before
    assert judged(looks=(3,), answer={"claims": ["dssp"]}) == "copied"


def test_what_is_there_is_listed(said: Said, as_json: AsJson, add: Callable[..., Any], reference: Path) -> None:
    words = ("reference", "list", "--reference", str(reference))
    assert said(*words) == f"0 plans, 0 B in {reference}\n"
    add("paper/table")
    (plan,) = as_json(*words)["plans"]
    assert {key: plan[key] for key in ("plan", "scale", "name", "runs", "missing", "seeds")} == {
        "plan": "paper-table-smoke", "scale": "smoke", "name": "paper/table", "runs": 2, "missing": 4, "seeds": 2,
    }  # fmt: skip
    _, line, total = said(*words).splitlines()
    assert line.split()[:4] == ["smoke", "paper/table", "2", "2"]
    assert plan["made"] in line
    assert "commit" in plan["made"]
    assert total.startswith("1 plan, ")
