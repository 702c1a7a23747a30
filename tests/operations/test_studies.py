"""status and show of studies: the stage, what is left, scores, decisions and the answer."""

import csv
import json
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest
from studies.made import SMALL, finish

from runners.commands import call, main
from runners.study import Made
from runners.tuning import declared_tuning
from syncline.operations.studies import _verdict_lines, state_lines
from syncline.studies.study import Stage

pytestmark = pytest.mark.xdist_group("a_study")  # which takes seconds to make

WORDS = [*SMALL, "launcher=slurm", "launcher.submit=false"]  # which writes a stage and makes none of its runs


def make_stage(results: Path, most: int | None = None) -> bool:
    """Records of the present stage; False without one."""
    records = Made(results)
    stage = declared_tuning(WORDS[1:])[0].study.next(records.outcome)
    if not isinstance(stage, Stage):
        return False
    for entry in map(records.entry, stage.trials[:most]):
        if not (results / entry.config.identity).exists():
            diverges = entry.label.startswith("strategy=asp") and entry.config.optimizer.lr > 0.01
            finish(results, entry.config, status="diverged" if diverges else "finished")
    return True


@dataclass(frozen=True)
class Told:
    """What commands said of a study, while its screening waits, one of its six runs made, and after its answer."""

    results: Path
    stem: str
    before: dict[str, str]
    after: dict[str, str]
    figures: list[int]  # exit codes of its report, before and after


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    results = tmp_path_factory.mktemp("results")
    words = [*WORDS, f"results={results}"]
    assert call(words) == 0
    make_stage(results, 1)
    (path,) = (results / "studies").glob("*.json")
    figures = [main(["report", "study", path.stem, "--results", str(results)])]
    before = said_of(results, path.stem)
    while make_stage(results):
        pass
    assert call(words) == 0
    figures.append(main(["report", "study", path.stem, "--results", str(results)]))
    return Told(results, path.stem, before, said_of(results, path.stem), figures)


def said_of(results: Path, stem: str) -> dict[str, str]:
    """By the words of the command, on a wide terminal."""
    found = {}
    for words in (["status"], ["status", "--json"], ["show", stem], ["show", stem, "--json"]):
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as out:
            patch.setenv("COLUMNS", "200")
            assert main([*words, "--results", str(results)]) == 0
        found[" ".join(words).replace(stem, "STEM")] = out.getvalue()
    return found


def test_status_lists_the_stage_and_the_runs_that_are_left(told: Told) -> None:
    listed = told.before["status"].splitlines()
    place = next(number for number, line in enumerate(listed) if line.startswith("study"))
    assert listed[place].split() == ["study", "stage", "trials", "left"]
    assert listed[place + 1].split() == [told.stem, "screen", "1", "6", "5"]
    assert "syncline tune strategy=bsp,asp" in listed[place + 2]
    (state,) = json.loads(told.before["status --json"])["studies"]
    assert (state["study"], state["stage"], state["left"], state["answered"]) == (told.stem, "screen 1", 5, False)
    assert [told.stem, "answered", "18", "0"] in [line.split() for line in told.after["status"].splitlines()]


def test_a_narrow_terminal_has_the_same_list_on_more_lines() -> None:
    stem = "tune-0123456789"
    found = [{"study": stem, "stage": "screen 1", "trials": 6, "left": 5, "command": ["tune"]}] * 2
    wide, narrow = ("".join("".join(state_lines(found, width)).split()) for width in (200, len(stem) + 2))
    assert narrow == wide
    claims = [{"claim": "a" * 30, "verdict": "holds", "num_seeds": 5, "because": "b"}]
    lines = _verdict_lines("judge", {"claims": claims, "num_seeds": 5}, 20)
    assert "".join("".join(lines).split()) == f"claimverdictseeds{'a' * 30}holds5b"


def test_show_has_each_stage_with_its_scores_and_decisions_and_then_the_answer(told: Told) -> None:
    before, shown = told.before["show STEM"], told.after["show STEM"]
    name = "softmax_regression on digits, cluster laptop"
    assert before.startswith(
        f"from {told.results}/studies/{told.stem}.json\n{told.stem}: tune of {name} at scale laptop\n"
    )
    assert "screen 1: 6 trials, under way" in before
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    place = lines.index("screen 1: 6 trials")
    assert lines[place + 1 : place + 4] == [
        "row 0.005 0.01 0.02",
        "strategy=bsp 0.8 0.9 0.8",
        "strategy=asp 0.8 0.9 lost",
    ]
    assert "- strategy=asp: best 0.01 (accuracy 0.9)" in lines
    assert "full 1: 12 trials" in lines
    assert "strategy=asp 0.01 0.9±0 - 0.01 9" in lines
    assert "target for times: accuracy 0.855, from strategy=bsp's 0.9" in lines
    assert "strategy=asp model=softmax_regression epochs=3 optimizer.lr=0.01" in lines
    content = json.loads(told.after["show STEM --json"])
    assert content["answer"]["num_trials"] == 9
    assert [stage["num_trials"] for stage in content["stages"]] == [6, 12]


def test_an_unknown_name_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "tune-nothing", "--results", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("error: no such record: ")
    assert main(["report", "study", "tune-nothing", "--results", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("error: no study 'tune-nothing'; there are judge-")


def test_the_figure_has_a_curve_a_row_without_the_values_that_were_lost(told: Told) -> None:
    assert told.figures == [1, 0]
    folder = told.results / "reports"
    assert {".svg", ".png", ".csv"} <= {path.suffix for path in folder.glob(f"{told.stem}.*")}
    with (folder / f"{told.stem}.csv").open() as file:
        points = [point for point in csv.DictReader(file) if point["panel"].startswith("one seed")]
    screened = [(point["series"], point["x"], float(point["y"])) for point in points]
    assert screened == [
        ("strategy=bsp", "0.005", pytest.approx(0.8)),
        ("strategy=bsp", "0.01", pytest.approx(0.9)),
        ("strategy=bsp", "0.02", pytest.approx(0.8)),
        ("strategy=asp", "0.005", pytest.approx(0.8)),
        ("strategy=asp", "0.01", pytest.approx(0.9)),
    ]
