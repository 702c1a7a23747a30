"""Fixtures of the tests without Slurm."""

from pathlib import Path

import pytest
from slurm_tools import Tools


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    return Tools(tmp_path / "tools", monkeypatch)


@pytest.fixture
def cluster(tools: Tools) -> Tools:
    """Takes every job; they are numbered from 17. Its queue has none of them."""
    tools.says("scontrol", "MaxArraySize = 1001")
    tools.numbers("sbatch", 17)
    tools.says("squeue", "99 0 PENDING")
    return tools
