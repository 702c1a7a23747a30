"""The collective against torch's own."""

import pytest

from benchmarks.allreduce import against_ddp


@pytest.mark.parametrize(("num_members", "model"), [(2, "resnet20"), (4, "lenet")])
def test_the_parameters_after_20_steps_are_those_of_ddp(num_members, model):
    """With two members sums have no order, and all bits agree; with four they round differently."""
    result = against_ddp(num_members, model, image_size=8 if model == "resnet20" else 32, steps=1, pairs=1)
    assert result["difference"] <= (0.0 if num_members == 2 else 1e-5)
