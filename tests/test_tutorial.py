"""docs/tutorial.md: its commands run one after the other, with the network that it shows."""

import re
import shlex
from collections import Counter
from pathlib import Path

import pytest
from commands import ROOT
from own import using

from runners.commands import call
from syncline.config.folders import VARIABLE
from syncline.records.store import read_summary

TEXT = (ROOT / "docs" / "tutorial.md").read_text()
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]
(LAYERS,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
SHORTER = {"calibrate": ["--samples=60", "--no-links", "--no-validate"]}


@pytest.mark.processes
def test_the_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my").mkdir()
    with using(tmp_path / "my"):
        monkeypatch.delenv(VARIABLE)  # the commands name the folder
        for command in COMMANDS:
            program, name, *words = shlex.split(command)
            assert program == "syncline"
            assert call([name, *words, *SHORTER.get(name, [])]) == 0, capsys.readouterr()
            if name == "new":
                path = tmp_path / "my" / "net.py"
                head, tail = path.read_text().split("        hidden = ")
                path.write_text(head + LAYERS + "\n" + tail[tail.index("    def forward") :])
    out = capsys.readouterr().out
    assert "no fault was found" in out
    for strategy in ("bsp", "ssp", "dssp", "k_async"):
        assert re.search(rf"^{strategy} ", out, re.MULTILINE), out
    engines = [read_summary(path.parent)["engine"] for path in (tmp_path / "results").glob("*-net-*/summary.json")]
    assert Counter(engines) == {"simulation": 4, "live": 2}, "calibration and the last command are of real processes"
