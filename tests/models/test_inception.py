"""Inception networks against Szegedy et al. 2015 and Zhang et al. 2017."""

import pytest
import torch
from torch import nn

from syncline.models.inception import ConvModule, DownsampleModule, InceptionModule, InceptionSmall, inception_v3


def size(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def test_inception_v3_for_imagenet() -> None:
    """Table 1: the maps are 35, 17 and 8 pixels wide."""
    shapes: list[tuple[int, ...]] = []
    with torch.device("meta"):
        network = inception_v3(in_channels=3, image_size=299, num_classes=1000)
        for name in ("Mixed_5d", "Mixed_6e", "Mixed_7c"):
            network.get_submodule(name).register_forward_hook(
                lambda _module, _args, out: shapes.append(tuple(out.shape[1:]))
            )
        network.train()
        outputs = network(torch.empty(2, 3, 299, 299))
    assert shapes == [(288, 35, 35), (768, 17, 17), (2048, 8, 8)]
    assert size(network) == 27_161_264
    assert (outputs.logits.shape, outputs.aux_logits.shape) == ((2, 1000), (2, 1000))


@pytest.mark.slow
def test_the_auxiliary_head_needs_299_pixels() -> None:
    with torch.device("meta"):
        network = inception_v3(in_channels=3, image_size=299, num_classes=10)
        with pytest.raises(RuntimeError, match="Kernel size can't be greater than actual input size"):
            network(torch.empty(2, 3, 298, 298))


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
    shapes: list[tuple[int, ...]] = []
    with torch.device("meta"):
        network = InceptionSmall(in_channels=3, image_size=28, num_classes=10)
        for module in network.features:
            module.register_forward_hook(lambda _module, _args, out: shapes.append(tuple(out.shape[1:])))
        network(torch.empty(1, 3, 28, 28))
    assert size(network) == 1_649_402
    assert shapes == (
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
    for module in InceptionSmall(in_channels=3, image_size=32, num_classes=10).modules():
        if isinstance(module, nn.Conv2d):
            fan_in = module.in_channels * module.kernel_size[0] * module.kernel_size[1]
            assert module.weight.std().item() == pytest.approx((2 / fan_in) ** 0.5, rel=0.1)
        if isinstance(module, ConvModule):
            assert module.shift.eq(0).all()
