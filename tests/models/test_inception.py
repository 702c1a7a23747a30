"""Inception networks against Szegedy et al. 2015 and Zhang et al. 2017."""

import pytest
import torch
from models.networks import check_start_of_he, maps, num_parameters
from torch import nn

from syncline.models.inception import ConvModule, DownsampleModule, InceptionModule, InceptionSmall, inception_v3


def test_inception_v3_for_imagenet() -> None:
    """Table 1: the maps are 35, 17 and 8 pixels wide."""
    with torch.device("meta"):
        network = inception_v3(in_channels=3, image_size=299, num_classes=1000)
    asked = [network.get_submodule(name) for name in ("Mixed_5d", "Mixed_6e", "Mixed_7c", "AuxLogits", "fc")]
    shapes = maps(network.train(), asked, 299)
    assert sorted(shapes) == [(288, 35, 35), (768, 17, 17), (1000,), (1000,), (2048, 8, 8)]
    assert num_parameters(network) == 27_161_264


@pytest.mark.slow
def test_inception_v3_starts_as_torchvision_has_it() -> None:
    torch.manual_seed(0)
    network = inception_v3(in_channels=3, image_size=299, num_classes=100)
    for name, module in network.named_modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            deviation = 0.001 if name == "AuxLogits.fc" else 0.1
            assert module.weight.std().item() == pytest.approx(deviation, rel=0.1), name
        if isinstance(module, nn.BatchNorm2d):
            assert module.weight.eq(1).all()
            assert module.bias.eq(0).all()


def test_inception_small_has_the_published_size_and_maps() -> None:
    """Zhang et al., table 1 and figure 3, on the 28x28 pixels of the paper."""
    with torch.device("meta"):
        network = InceptionSmall(in_channels=3, image_size=28, num_classes=10)
    assert num_parameters(network) == 1_649_402
    assert maps(network, network.features, 28) == (
        [(96, 28, 28), (64, 28, 28), (80, 28, 28)]
        + [(160, 14, 14)] * 4
        + [(144, 14, 14)]
        + [(240, 7, 7)]
        + [(336, 7, 7)] * 2
    )


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


def test_inception_small_starts_with_the_variance_of_he() -> None:
    torch.manual_seed(0)
    network = InceptionSmall(in_channels=3, image_size=32, num_classes=10)
    check_start_of_he(network, rel=0.1, is_fan_out=False)
    assert all(module.shift.eq(0).all() for module in network.modules() if isinstance(module, ConvModule))
