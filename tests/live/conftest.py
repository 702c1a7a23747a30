"""Ways from a client to a server: addresses, with and without TLS."""

import shutil
import subprocess

import pytest

from syncline.live.transport import Tls

OPENSSL = shutil.which("openssl")


@pytest.fixture(scope="session")
def two_certificates(tmp_path_factory):
    """The run's, and another's."""
    if OPENSSL is None:
        pytest.skip("openssl, which makes the certificates, is absent")
    made = []
    for name in ("ours", "other"):
        folder = tmp_path_factory.mktemp(name)
        key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key.pem"
        command = f"{OPENSSL} req -x509 {key} -out cert.pem -days 1 -subj /CN=syncline"
        subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
        made.append(Tls(str(folder / "cert.pem"), str(folder / "key.pem")))
    return made


@pytest.fixture(params=["unix", "tcp", "unix with TLS", "tcp with TLS"])
def way(request):
    """An address to listen at, and the certificate or None."""
    address = "unix:" if request.param.startswith("unix") else "tcp:127.0.0.1:0"
    return address, request.getfixturevalue("two_certificates")[0] if "TLS" in request.param else None
