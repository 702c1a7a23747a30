"""One of the fifty runs of `make kills`."""

import pytest

from benchmarks.kills import kill_once

pytestmark = pytest.mark.processes


def test_a_run_survives_the_kill_of_a_random_worker_at_a_random_time(tmp_path):
    """It ends by itself, with every gradient used, no sample lost or seen twice, and no process left behind."""
    outcome = kill_once("dssp", 1, tmp_path)
    assert outcome.was_alive
