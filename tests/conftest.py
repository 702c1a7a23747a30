"""Shared by all tests."""

import signal

import pytest
from hypothesis import HealthCheck, settings

# Fixed examples, so that a failure seen once is seen again; no deadline, since machines of CI are shared.
settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("ci")

# A shell's background job ignores Ctrl-C, and so would every process that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-traces", action="store_true", help="write tests/traces/*.txt anew instead of comparing")
