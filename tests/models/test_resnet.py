"""Residual networks against He et al. 2015, section 4.2."""

import torch
from torch import nn

from syncline.models.resnet import BasicBlock


def test_shortcuts_have_no_parameters() -> None:
    """4.2: "we use identity shortcuts in all cases (i.e., option A)"."""
    block = BasicBlock(in_channels=4, channels=8, stride=2).eval()
    assert {name.partition(".")[0] for name, _ in block.named_parameters()} == {"conv1", "norm1", "conv2", "norm2"}
    nn.init.zeros_(block.conv2.weight)  # what is left is the shortcut
    images = torch.rand(3, 4, 6, 6)
    with torch.no_grad():
        out = block(images)
    assert torch.equal(out[:, :4], images[:, :, ::2, ::2])
    assert torch.equal(out[:, 4:], torch.zeros(3, 4, 3, 3))
