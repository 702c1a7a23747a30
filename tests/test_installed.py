"""The wheel: it holds all that the commands need, and they work from an empty folder, without the checkout."""

import json
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import pytest
from commands import ROOT

import syncline
from syncline.installation import make_command

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("installed")]

# Folder of the checkout -> its place in the wheel.
PLACES = {
    "src/syncline": "syncline",
    "runners": "runners",
    "reports": "reports",
    "slurm": "slurm",
    "conf": "syncline/conf",
    "reference": "syncline/reference",
    "docs/findings": "syncline/docs/findings",
}
MAX_BYTES = 25e6  # of which 19 are the reference, which grows with what is judged; PyPI takes 100


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, and the other packages of this one."""

    wheel: Path
    bin: Path
    folder: Path  # the working directory

    def __call__(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Also the first word is found in the environment."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYTEST"))}
        return subprocess.run(
            [str(self.bin / words[0]), *words[1:]],
            cwd=self.folder,
            env={**clean, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Built and installed without any package index."""
    base = tmp_path_factory.mktemp("installed")
    (base / "info").mkdir()
    (base / "setup.cfg").write_text(f"[build]\nbuild_base={base / 'build'}\n[egg_info]\negg_base={base / 'info'}\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = [*pip, "wheel", str(ROOT), "--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", str(base)]
    subprocess.run(build, env={**os.environ, "DIST_EXTRA_CONFIG": str(base / "setup.cfg")}, check=True)
    (wheel,) = base.glob("*.whl")
    venv, folder = base / "venv", base / "empty"
    folder.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (own,) = venv.glob("lib/python*/site-packages")
    (own / "others.pth").write_text(sysconfig.get_path("purelib"))  # whose own .pth files are not read
    python = ["--python", str(venv / "bin" / "python")]
    subprocess.run([*pip, *python, "install", "--no-deps", "--no-index", "--no-compile", str(wheel)], check=True)
    return Installed(wheel, venv / "bin", folder)


def test_the_wheel_holds_every_file_of_its_folders_and_is_small(installed: Installed) -> None:
    here = {
        f"{place}/{path.relative_to(ROOT / folder)}"
        for folder, place in PLACES.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".draft"
    }
    assert {"runners/command_line.py", "syncline/conf/config.yaml", "reports/templates/base.html"} <= here
    with ZipFile(installed.wheel) as wheel:
        there = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert there == here
    assert installed.wheel.stat().st_size < MAX_BYTES


def test_the_commands_of_the_page_work_from_an_empty_folder(installed: Installed) -> None:
    where = installed(
        "python", "-P", "-c", "import syncline, runners; print(syncline.__file__, runners.__file__)"
    ).stdout
    assert all(path.startswith(str(installed.bin.parent)) for path in where.split()), where
    page = (ROOT / "docs" / "installing.md").read_text()
    first = page.partition("```bash\n")[2].partition("```")[0].splitlines()
    commands = [line.split() for line in first if line.startswith("syncline")]
    said = {command[1]: installed(*command) for command in commands}
    assert [one.returncode for one in said.values()] == [0] * 4, said
    assert said["--version"].stdout == f"syncline {syncline.__version__}\n"
    assert "max_updates after" in said["run"].stdout
    assert "written: results/reports/psp-fig2-laptop" in said["report"].stdout  # its runs are in the reference
    assert "Made by: syncline run +experiment=psp/fig2 scale=laptop" in said["report"].stdout
    assert [path.name for path in installed.folder.iterdir()] == ["results"]


def test_real_processes_and_plans_work_there(installed: Installed) -> None:
    said = installed("syncline", "run", "runner=local", "max_updates=3", "cluster.workers=2", "batch_size=8")
    assert (said.returncode, "max_updates after" in said.stdout) == (0, True), said
    sweep = ["-m", "seed=0,1", "gradients=false", "max_updates=20", "jobs=2"]
    said = installed("syncline", "run", *sweep)
    assert (said.returncode, "2 of 2 runs finished, 0 failed" in said.stderr) == (0, True), said
    said = installed("syncline", "status", "sweep")
    assert f"syncline run {' '.join(sweep)}" in said.stdout, said
    environments = list((installed.folder / "results").glob("*/environment.json"))
    assert environments
    for record in environments:
        assert json.loads(record.read_text())["commit"] == f"v{syncline.__version__}"
    said = installed("syncline", "retry", "sweep")
    assert (said.returncode, "2 runs, 2 finished before, 0 to make" in said.stderr) == (0, True), said


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["run", "seed=x"], "error: seed must be a whole number, got x"),
        (["report", "docs"], "error: docs writes the pages of a checkout, and this is none"),
        (["report", "dssp/table1", "--scale", "gpu"], "syncline run +experiment=dssp/table1 scale=gpu makes it"),
    ],
)
def test_what_cannot_be_done_is_one_line(installed: Installed, words: list[str], line: str) -> None:
    said = installed("syncline", *words)
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr.endswith(f"{line}\n")
    assert len(said.stderr.splitlines()) == 1


def test_a_checkout_names_its_targets() -> None:
    assert make_command("dssp/table1", "gpu") == "make dssp-table1 SCALE=gpu"
    assert make_command("all", "gpu") == "make papers SCALE=gpu"
