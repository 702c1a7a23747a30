"""Certificates as a user makes them, by openssl."""

import shutil
import subprocess
from pathlib import Path

import pytest

from syncline.live.sockets import Tls

OPENSSL = shutil.which("openssl")


def certificate(folder: Path) -> Tls:
    """A new one and its key, in this folder."""
    if OPENSSL is None:
        pytest.skip("openssl, which makes the certificates, is absent")
    key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key.pem"
    command = f"{OPENSSL} req -x509 {key} -out cert.pem -days 1 -subj /CN=syncline"
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return Tls(str(folder / "cert.pem"), str(folder / "key.pem"))


def over_tls(folder: Path) -> list[str]:
    """Overrides that have a run use a new certificate."""
    made = certificate(folder)
    return [f"runner.tls_cert={made.cert}", f"runner.tls_key={made.key}"]
