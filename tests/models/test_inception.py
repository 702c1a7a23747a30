"""The modules of the small Inception network against Zhang et al. 2017."""

import pytest
import torch
from torch import nn

from syncline.models.inception import ConvModule, DownsampleModule, InceptionModule


def test_batch_norm_shifts_but_does_not_scale() -> None:
    module = ConvModule(3, 64, 3)
    nn.init.constant_(module.shift, 10.0)  # far above zero: the ReLU changes nothing
    out = module(5 * torch.randn(16, 3, 8, 8) + 2)
    assert out.mean(dim=(0, 2, 3)).tolist() == pytest.approx([10.0] * 64, abs=1e-3)
    assert out.std(dim=(0, 2, 3)).tolist() == pytest.approx([1.0] * 64, abs=1e-2)


def test_inception_modules_concatenate_their_branches() -> None:
    module = InceptionModule(4, 3, 5).eval()
    maps = torch.randn(2, 4, 6, 6)
    out = module(maps)
    assert torch.equal(out[:, :3], module.conv1(maps))
    assert torch.equal(out[:, 3:], module.conv3(maps))


def test_downsampling_concatenates_a_max_pooling_and_a_convolution() -> None:
    module = DownsampleModule(4, 3).eval()
    maps = torch.randn(2, 4, 6, 6)
    out = module(maps)
    assert torch.equal(out[:, :3], module.conv3(maps))
    assert torch.equal(out[:, 3:, 1, 1], maps[:, :, 1:4, 1:4].amax(dim=(2, 3)))
