"""status and show of studies: the stage, what is left, scores, decisions and the answer."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from studies.made import SMALL, finish

from reports.__main__ import main as reports_main
from runners import command_line
from runners.study import present_stage
from runners.tuning import declared_tuning
from syncline.__main__ import main
from syncline.operations.studies import _verdict_lines, state_lines

Say = Callable[..., str]


@pytest.fixture
def say(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Say:
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main([*words, "--results", str(tmp_path)]) == code
        return capsys.readouterr().out

    return call


WORDS = [*SMALL, "launcher=slurm", "launcher.submit=false"]  # which writes a stage and makes none of its runs


@pytest.fixture
def stem(tmp_path: Path) -> str:
    """A study whose screening waits, one of its six runs made."""
    words = [*WORDS, f"results={tmp_path}"]
    assert command_line.main(words) == 0
    make_stage(tmp_path, 1)
    return next((tmp_path / "studies").glob("*.json")).stem


def make_stage(results: Path, most: int | None = None) -> bool:
    """Records of the present stage; False without one."""
    plan = present_stage(*declared_tuning([*WORDS, f"results={results}"]))
    if plan is None:
        return False
    for entry in plan.entries[:most]:
        if not (results / entry.config.identity).exists():
            diverges = entry.label.startswith("strategy=asp") and entry.config.optimizer.lr > 0.01
            finish(results, entry.config, status="diverged" if diverges else "finished")
    return True


def answer(results: Path) -> None:
    while make_stage(results):
        pass
    assert command_line.main([*WORDS, f"results={results}"]) == 0


def test_status_lists_the_stage_and_the_runs_that_are_left(tmp_path: Path, stem: str, say: Say) -> None:
    listed = say("status").splitlines()
    place = next(number for number, line in enumerate(listed) if line.startswith("study"))
    assert listed[place].split() == ["study", "stage", "trials", "left"]
    assert listed[place + 1].split() == [stem, "screen", "1", "6", "5"]
    assert "python run.py +tune=rate strategy=bsp,asp" in listed[place + 2]
    (state,) = json.loads(say("status", "--json"))["studies"]
    assert (state["study"], state["stage"], state["left"], state["answered"]) == (stem, "screen 1", 5, False)
    answer(tmp_path)
    assert [stem, "answered", "18", "0"] in [line.split() for line in say("status").splitlines()]


def test_a_narrow_terminal_has_the_same_list_on_more_lines(tmp_path: Path, stem: str) -> None:
    found = [{"study": stem, "stage": "screen 1", "trials": 6, "left": 5, "command": ["+tune=rate"]}] * 2
    wide, narrow = ("".join("".join(state_lines(found, width)).split()) for width in (200, len(stem) + 2))
    assert narrow == wide
    claims = [{"claim": "a" * 30, "verdict": "holds", "num_seeds": 5, "because": "b"}]
    lines = _verdict_lines("judge", {"claims": claims, "num_seeds": 5}, 20)
    assert "".join("".join(lines).split()) == f"claimverdictseeds{'a' * 30}holds5b"


def test_show_has_each_stage_with_its_scores_and_decisions_and_then_the_answer(
    tmp_path: Path, stem: str, say: Say
) -> None:
    before = say("show", stem)
    assert before.startswith(f"from {tmp_path}/studies/{stem}.json\n{stem}: tune\n")
    assert "screen 1: 6 trials, under way" in before
    answer(tmp_path)
    shown = say("show", stem)
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    place = lines.index("screen 1: 6 trials")
    assert lines[place + 1 : place + 4] == [
        "row 0.005 0.01 0.02",
        "strategy=bsp 0.8 0.9 0.8",
        "strategy=asp 0.8 0.9 lost",
    ]
    assert "- strategy=asp: best 0.01 (accuracy 0.9)" in lines
    assert "full 1: 12 trials" in lines
    assert "strategy=asp 0.01 0.9±0 0.01 0.01 9" in lines
    assert "target for times: accuracy 0.855, from strategy=bsp's 0.9" in lines
    assert "strategy=asp model=softmax_regression epochs=3 optimizer.lr=0.01" in lines
    content = json.loads(say("show", stem, "--json"))
    assert content["answer"]["num_trials"] == 9
    assert [stage["num_trials"] for stage in content["stages"]] == [6, 12]


def test_an_unknown_name_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "tune-nothing", "--results", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("error: no such record: ")
    assert reports_main(["study", "tune-nothing", "--results", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("error: no study 'tune-nothing'; there are judge-")


def test_the_figure_has_a_curve_a_row_without_the_values_that_were_lost(tmp_path: Path, stem: str) -> None:
    assert reports_main(["study", stem, "--results", str(tmp_path)]) == 1
    answer(tmp_path)
    assert reports_main(["study", stem, "--results", str(tmp_path)]) == 0
    files = {path.suffix for path in (tmp_path / "reports").glob(f"{stem}.*")}
    assert {".svg", ".png", ".csv"} <= files
    with (tmp_path / "reports" / f"{stem}.csv").open() as file:
        points = [point for point in csv.DictReader(file) if point["panel"].startswith("screening")]
    screened = [(point["series"], point["x"], float(point["y"])) for point in points]
    assert screened == [
        ("strategy=bsp", "0.005", pytest.approx(0.8)),
        ("strategy=bsp", "0.01", pytest.approx(0.9)),
        ("strategy=bsp", "0.02", pytest.approx(0.8)),
        ("strategy=asp", "0.005", pytest.approx(0.8)),
        ("strategy=asp", "0.01", pytest.approx(0.9)),
    ]
