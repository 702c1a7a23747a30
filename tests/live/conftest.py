"""Ways from a client to a server, and runs of real processes."""

from pathlib import Path

import pytest
from live.here import Launcher


@pytest.fixture(params=["unix:", "tcp:127.0.0.1:0"])
def way(request):
    """An address to listen at."""
    return request.param


@pytest.fixture
def launch(tmp_path: Path, monkeypatch, capsys) -> Launcher:
    return Launcher(tmp_path, monkeypatch, capsys)
