"""The collective against torch's own."""

import pytest

from benchmarks.allreduce import against_ddp

pytestmark = pytest.mark.processes


@pytest.mark.parametrize(("num_members", "dtype"), [(2, "float32"), (4, "float64")])
def test_the_parameters_of_resnet20_after_20_steps_are_those_of_ddp(num_members, dtype):
    """Sums of two have no order, so all bits agree. Sums of four round differently, which the network amplifies."""
    result = against_ddp(num_members, "resnet20", dtype, image_size=8, steps=1, pairs=1)
    assert result["difference"] <= (0.0 if num_members == 2 else 1e-5)
