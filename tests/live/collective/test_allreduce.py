"""The collective against torch's own."""

import pytest

from benchmarks.allreduce import Case, against_ddp

pytestmark = pytest.mark.processes


def test_the_parameters_of_resnet20_after_20_steps_are_those_of_ddp():
    """Sums of two have no order, so all bits agree."""
    case = Case("resnet20", batch_size=8, image_size=8, steps=1, pairs=1)
    assert against_ddp(2, case)["difference"] == 0.0
