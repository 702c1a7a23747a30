"""GPT: the published size; test_random_networks.py has what it predicts from."""

from pathlib import Path

import pytest
import torch
import yaml

from syncline.models.gpt import Gpt

pytestmark = pytest.mark.xdist_group("torchvision")  # which transformers imports; it takes seconds

CONF = Path(__file__).parents[2] / "conf" / "model"


@pytest.mark.slow
def test_the_smallest_has_the_published_size() -> None:
    """117 M in the paper, which its authors corrected to 124 M."""
    options = yaml.safe_load((CONF / "gpt2.yaml").read_text())
    del options["name"]
    with torch.device("meta"):
        network = Gpt(50_257, 1024, **options)
    assert sum(parameter.numel() for parameter in network.parameters()) == 124_439_808
