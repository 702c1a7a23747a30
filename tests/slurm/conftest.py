"""Fixtures of the tests without Slurm."""

from pathlib import Path

import pytest
from slurm_tools import Tools


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    return Tools(tmp_path / "tools", monkeypatch)
