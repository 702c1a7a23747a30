"""The collective against torch's own."""

import pytest

from benchmarks.allreduce import Case, against_ddp

pytestmark = pytest.mark.processes


@pytest.mark.parametrize(
    ("num_members", "dtype", "impl"), [(2, "float32", "flat"), (2, "float32", "overlap"), (4, "float64", "overlap")]
)
def test_the_parameters_of_resnet20_after_20_steps_are_those_of_ddp(num_members, dtype, impl):
    """Sums of two have no order, so all bits agree. Sums of four round differently, which the network amplifies."""
    case = Case("resnet20", impl=impl, dtype=dtype, image_size=8, steps=1, pairs=1)
    result = against_ddp(num_members, case)
    assert result["difference"] <= (0.0 if num_members == 2 else 1e-5)
