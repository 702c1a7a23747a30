"""Ways from a client to a server, and runs of real processes."""

from pathlib import Path

import pytest
from certificates import certificate
from live.here import Launcher


@pytest.fixture(scope="session")
def two_certificates(tmp_path_factory):
    """The run's, and another's."""
    return [certificate(tmp_path_factory.mktemp(name)) for name in ("ours", "other")]


@pytest.fixture(params=["unix", "tcp with TLS"])
def way(request):
    """An address to listen at, and the certificate or None."""
    if request.param == "unix":
        return "unix:", None
    return "tcp:127.0.0.1:0", request.getfixturevalue("two_certificates")[0]


@pytest.fixture
def launch(tmp_path: Path, monkeypatch, capsys) -> Launcher:
    return Launcher(tmp_path, monkeypatch, capsys)
