"""What the README says is run: every command, every path it names, every link."""

import re
import subprocess
from pathlib import Path

import pytest

import run
from reports.__main__ import ARTEFACTS
from reports.__main__ import main as reports_main
from syncline.__main__ import main as syncline_main
from syncline.config import compose
from syncline.strategies import STRATEGIES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]


def test_there_are_commands():
    assert {command.split()[0] for command in COMMANDS} == {"make", "python"}


RUNS = [c for c in COMMANDS if c.startswith("python run.py") and "runner=" not in c]
LIVE_RUNS = [c for c in COMMANDS if "runner=local" in c]


@pytest.mark.parametrize("command", RUNS)
def test_a_command_runs(command, tmp_path, capsys):
    """As written, but for three updates at most and a folder of its own."""
    words = command.split()[2:]
    if "+experiment=dssp/table1" not in words or "--status" in words:
        words += [f"results={tmp_path}"] + ([] if "--status" in words or "--cfg" in words else ["max_updates=3"])
        assert run.main(words) == 0
        assert capsys.readouterr().out


@pytest.mark.parametrize("command", LIVE_RUNS)
def test_a_command_of_real_processes_runs_and_so_does_what_looks_at_its_record(command, tmp_path, capsys):
    """As above, and then each command that takes the identity of such a run."""
    words = [*command.split()[2:], f"results={tmp_path}", "max_updates=3"]
    assert run.main(words) == 0
    config, _ = compose(words)
    for other in (c for c in COMMANDS if "<identity>" in c):
        asked = other.replace("<identity>", config.identity).split()
        if "timeline" in other:
            assert syncline_main([*asked[3:], "--results", str(tmp_path)]) == 0
        elif config.strategy.has_server:
            assert run.main([*asked[2:], f"results={tmp_path}"]) == 0
            assert "equal in every bit" in " ".join(capsys.readouterr().out.split())


def test_every_command_is_run_by_a_test():
    others = {"make run", "make dssp-table1 SCALE=smoke", *TIMES_ALONE}
    assert {c for c in COMMANDS if "<identity>" not in c} == {*RUNS, *LIVE_RUNS, *others}


# Artefacts of times alone, as the README has them, and what makes each small.
TIMES_ALONE = {
    "make adasync-fig6": "epochs=1",
    "make adasync-fig7": "max_updates=20",
    "make dssync-table1": "max_updates=4",
    "make psp-table1": "max_updates=4",
}


@pytest.mark.parametrize("command", TIMES_ALONE)
def test_an_artefact_of_times_alone_is_made(command, tmp_path, capfd):
    """The run, then the report; but shorter, with two seeds, and in a folder of its own."""
    asked, report = make_lines(*command.split()[1:])
    words = [*asked.split()[1:], TIMES_ALONE[command], "scale.seeds=[0,1]", f"results={tmp_path}"]
    assert run.main(words) == 0
    assert "0 failed" in capfd.readouterr().err
    assert reports_main([*report.split()[2:], "--results", str(tmp_path)]) == 0
    shown = capfd.readouterr().out
    assert "Made by: " in shown
    assert "NOT COMPLETE" not in shown


def test_the_whole_of_table_1_at_scale_smoke(tmp_path, capfd):
    """`make dssp-table1 SCALE=smoke`: the run, then the report."""
    for step in make_lines("dssp-table1", "SCALE=smoke"):
        assert step in ("run.py +experiment=dssp/table1 scale=smoke", "-m reports dssp/table1 --scale smoke")
    assert run.main(["+experiment=dssp/table1", "scale=smoke", f"results={tmp_path}"]) == 0
    assert "48 of 48 runs finished, 0 failed" in capfd.readouterr().err
    assert run.main(["--status", "+experiment=dssp/table1", "scale=smoke", f"results={tmp_path}"]) == 0
    assert capfd.readouterr().out.count("finished") == 48
    assert reports_main(["dssp/table1", "--scale", "smoke", "--results", str(tmp_path)]) == 0
    shown = capfd.readouterr().out
    assert "DSSP s_L=3" in shown
    assert "NOT COMPLETE" not in shown
    # Figure 4 has the same runs: nothing is made again
    assert run.main(["+experiment=dssp/fig4", "scale=smoke", f"results={tmp_path}"]) == 0
    assert "24 finished before, 0 to make" in capfd.readouterr().err
    assert reports_main(["dssp/fig4", "--scale", "smoke", "--results", str(tmp_path)]) == 0


def make_lines(*words: str) -> list[str]:
    """The python commands that make would run."""
    command = ["make", "--no-print-directory", "-n", "-C", str(ROOT), *words]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.replace("\\\n", " ")
    return [part.strip() for part in re.findall(r"\.venv/bin/python ((?:run\.py|-m reports)[^;|\n]*)", shown)]


def test_make_run_is_the_default_run():
    assert make_lines("run") == ["run.py"]
    assert make_lines("run", "ARGS=strategy=asp") == ["run.py strategy=asp"]


def test_every_artefact_of_make_help_is_an_experiment_with_a_report():
    shown = subprocess.run(["make", "-C", str(ROOT), "help"], capture_output=True, text=True, check=True).stdout
    for word in ("setup", "run", "check", "test", "bench"):
        assert re.search(rf"^  {word} ", shown, re.MULTILINE)
    experiments = {path.relative_to(ROOT / "conf/experiment") for path in (ROOT / "conf/experiment").rglob("*.yaml")}
    assert experiments
    for path in experiments:
        name = str(path.with_suffix(""))
        assert re.search(rf'^  {name.replace("/", "-")} +"?\w', shown, re.MULTILINE)
        assert name in ARTEFACTS


def test_the_tree_is_as_listed():
    tree = re.search(r"## The map of the house\n\n```\n(.*?)```", README, re.DOTALL)
    assert tree is not None
    folder = ROOT
    for line in tree[1].splitlines():
        names = line.split("  ")[1 if line.startswith(" ") else 0].split()
        folder = ROOT / "src/syncline" if line.startswith("  ") else ROOT
        assert names, line
        for name in names:
            assert (folder / name).exists(), f"{line!r}: {name} is not there"


def test_links_and_pictures_resolve():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_every_strategy_is_in_the_table():
    for name in STRATEGIES:
        assert re.search(rf"^\| [^|]*`{name}`", README, re.MULTILINE), name
