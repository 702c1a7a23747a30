"""Ways from a client to a server: addresses, with and without TLS."""

import pytest
from certificates import certificate


@pytest.fixture(scope="session")
def two_certificates(tmp_path_factory):
    """The run's, and another's."""
    return [certificate(tmp_path_factory.mktemp(name)) for name in ("ours", "other")]


@pytest.fixture(params=["unix", "tcp", "unix with TLS", "tcp with TLS"])
def way(request):
    """An address to listen at, and the certificate or None."""
    address = "unix:" if request.param.startswith("unix") else "tcp:127.0.0.1:0"
    return address, request.getfixturevalue("two_certificates")[0] if "TLS" in request.param else None
