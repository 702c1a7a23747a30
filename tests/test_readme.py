"""The README: every command runs, every path exists, every link resolves."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from commands import cli

from reports.papers import SHOWN
from runners.commands import call, main
from syncline.config import compose, sweep
from syncline.strategies import STRATEGIES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]


OWN = [c for c in COMMANDS if "--config-dir" in c]  # whose pages show the folder, and are tested with it
RACES = [c for c in COMMANDS if c.startswith("syncline race")]
RUNS = [c for c in COMMANDS if c.startswith("python run.py") and "runner=" not in c and c not in (*OWN, *RACES)]
LIVE_RUNS = [c for c in COMMANDS if "runner=local" in c]
TORCHRUNS = [c for c in COMMANDS if c.startswith("torchrun ")]
SLURM_RUNS = [c for c in COMMANDS if "runner=slurm" in c]
OPERATIONS = [c for c in COMMANDS if c.startswith("syncline ") and "<identity>" not in c and c not in (*OWN, *RACES)]


SLOW = [c for c in RUNS if re.search(r" -m | model=|\+experiment=", c)]  # networks, or several runs


@pytest.mark.parametrize("command", SLOW)
def test_a_command_composes(command):
    words = [word for word in command.split()[2:] if not word.startswith("-")]
    for run in sweep(words):
        compose(run)


@pytest.mark.parametrize("command", [pytest.param(c, marks=[pytest.mark.slow] * (c in SLOW)) for c in RUNS])
def test_a_command_runs(command, tmp_path, capsys):
    """As written, but for three updates at most and a folder of its own."""
    starts_nothing = "--cfg" in command
    words = [*command.split()[2:], f"results={tmp_path}"] + ([] if starts_nothing else ["max_updates=3"])
    assert call(["run", *words]) == 0
    out = capsys.readouterr().out
    assert out
    assert starts_nothing or list(tmp_path.glob("*/summary.json")), out


@pytest.mark.processes
@pytest.mark.parametrize("command", LIVE_RUNS)
def test_a_command_of_real_processes_runs_and_so_do_those_that_read_its_record(command, tmp_path, capsys):
    """As above, and then each command that takes the identity of such a run."""
    words = [*command.split()[2:], f"results={tmp_path}", "max_updates=3"]
    said = cli(*words)
    assert said.code == 0, said.err
    config, _ = compose(words)
    for other in (c for c in COMMANDS if "<identity>" in c):
        asked = other.replace("<identity>", config.identity).split()
        if "timeline" in other:
            assert main([*asked[1:], "--results", str(tmp_path)]) == 0
        elif config.strategy.has_server:
            assert call(["run", *asked[2:], f"results={tmp_path}"]) == 0
            assert "equal in every bit" in " ".join(capsys.readouterr().out.split())


@pytest.mark.processes
@pytest.mark.parametrize("command", TORCHRUNS)
def test_a_command_of_torchrun_runs(command, tmp_path):
    words = [str(Path(sys.executable).with_name("torchrun")), *command.split()[1:], f"results={tmp_path}"]
    ended = subprocess.run(
        [*words, "max_updates=3"], cwd=ROOT, capture_output=True, text=True, timeout=150, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert list(tmp_path.glob("*/summary.json")), ended.stderr


@pytest.mark.parametrize("command", SLURM_RUNS)
def test_a_command_writes_a_batch_script(command, tmp_path, capsys):
    assert call(["run", *command.split()[2:], f"results={tmp_path}"]) == 0
    assert "not submitted: sbatch" in capsys.readouterr().out
    assert list(tmp_path.glob("plans/*.slurm/1/array.sbatch"))


@pytest.mark.parametrize(
    ("commands", "pages"), [(OPERATIONS, ["operations"]), (RACES, ["races"]), (OWN, ["extending", "calibration"])]
)
def test_commands_with_a_page_of_their_own_are_on_it_and_run_by_its_tests(commands, pages):
    """Those of tests/operations, tests/studies, test_extending.py and runners/test_calibrate.py."""
    assert commands
    assert set(commands) <= {line for page in pages for line in (ROOT / f"docs/{page}.md").read_text().splitlines()}


def test_every_command_is_run_by_a_test():
    others = {"make run", "make test", "make race", "make dssp-table1 SCALE=smoke", "make papers", "make report"}
    assert {c for c in COMMANDS if "<identity>" not in c} == {
        *RUNS,
        *LIVE_RUNS,
        *TORCHRUNS,
        *SLURM_RUNS,
        *OPERATIONS,
        *OWN,
        *RACES,
        *others,
    }


def make_lines(*words: str) -> list[str]:
    """The words of the commands of `syncline` that make would run."""
    command = ["make", "--no-print-directory", "-n", "-C", str(ROOT), *words]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE") and key != "ARGS"}
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    found = re.findall(r"\.venv/bin/syncline ([^;|\n]*)", shown.replace("\\\n", " "))
    return [" ".join(part.split()) for part in found]


RACE = "race model=mlp epochs=10 eval_every_epochs=0.1 target.value=0.93 race.confirm=2"


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ("run", ["run"]),
        ("run ARGS=strategy=asp", ["run strategy=asp"]),
        (
            "dssp-table1 SCALE=smoke SEEDS=4,9 ARGS=epochs=1",
            [
                "run +experiment=dssp/table1 scale=smoke 'scale.seeds=[4,9]' epochs=1",
                "report dssp/table1 --scale smoke",
            ],
        ),
        (
            "dssp-table1 ARGS='epochs=1 results=/tmp/elsewhere'",
            [
                "run +experiment=dssp/table1 scale=laptop epochs=1 results=/tmp/elsewhere",
                "report dssp/table1 --scale laptop --results /tmp/elsewhere",
            ],
        ),
        ("psp", ["run +experiment=psp scale=laptop", "report psp --scale laptop"]),
        ("papers SCALE=gpu", ["run +experiment=all scale=gpu", "report all --scale gpu"]),
        ("papers SCALE=gpu BUDGET=6h", ["judge all judge.budget=6h scale=gpu", "report all --scale gpu"]),
        ("report", ["report site"]),
        ("report SCALE=smoke", ["report site --scale smoke"]),
        ("race ARGS=race.confirm=0", [f"{RACE} race.confirm=0"]),
    ],
)
def test_make_runs_and_then_reports_from_where_it_wrote(words, lines):
    assert make_lines(*shlex.split(words)) == lines


def test_every_artefact_of_make_help_is_an_experiment_with_a_report():
    shown = subprocess.run(["make", "-C", str(ROOT), "help"], capture_output=True, text=True, check=True).stdout
    for word in ("setup", "run", "check", "test", "bench"):
        assert re.search(rf"^  {word} ", shown, re.MULTILINE)
    experiments = {path.relative_to(ROOT / "conf/experiment") for path in (ROOT / "conf/experiment").rglob("*.yaml")}
    assert experiments
    for path in experiments:
        name = str(path.with_suffix(""))
        assert re.search(rf'^  {name.replace("/", "-")} +"?\w', shown, re.MULTILINE)
        paper, _, own = name.partition("/")
        assert own in SHOWN[paper].shows


def test_the_tree_is_as_listed():
    page = (ROOT / "docs" / "architecture.md").read_text()
    tree = re.search(r"## Repository layout\n\n```\n(.*?)```", page, re.DOTALL)
    assert tree is not None
    folder = ROOT
    for line in tree[1].splitlines():
        names = line.split("  ")[1 if line.startswith(" ") else 0].split()
        folder = ROOT / "src/syncline" if line.startswith("  ") else ROOT
        assert names, line
        for name in names:
            assert (folder / name).exists(), f"{line!r}: {name} is not there"


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_pictures_resolve(page):
    text = page.read_text()
    headings = {
        re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in re.findall(r"^#+ (.+)$", text, re.M)
    }
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in headings, target
        else:
            assert target.startswith("https://") or (page.parent / target.partition("#")[0]).exists(), target


def test_every_strategy_is_in_the_table():
    for name in STRATEGIES:
        assert re.search(rf"^\| [^|]*`{name}`", README, re.MULTILINE), name
