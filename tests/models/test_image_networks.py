"""What holds for every image network."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest
import torch
from models.networks import maps, num_parameters
from torch import Tensor, nn
from torch.nn import functional as F

from syncline.models import MODELS
from syncline.models.inception import ConvModule, InceptionSmall, inception_v3
from syncline.models.resnet import BasicBlock
from syncline.models.wide_resnet import WideBlock, WideResNet

CLASSES = 5
IMAGENET = 224, 1000  # pixels, classes
IMAGES = {  # but for CIFAR-10
    "resnet50": IMAGENET,
    "wide_resnet50_2": IMAGENET,
    "inception_v3": (299, 1000),
    "inception_small": (28, 10),  # Zhang et al. 2017
}
SIZES: list[tuple[str, dict[str, int], int, float | None]] = [  # parameters, and the millions that a paper names
    ("lenet", {}, 62_006, None),
    ("alexnet_small", {}, 4_579_466, None),
    ("softmax_regression", {}, 30_730, None),
    ("resnet", {"depth": 20}, 269_722, 0.27),  # He et al. 2015, table 6
    ("resnet", {"depth": 50}, 755_802, None),  # n = 8
    ("resnet", {"depth": 110}, 1_727_962, 1.7),
    ("wide_resnet", {"depth": 16, "width": 4}, 2_748_890, 2.7),  # Zagoruyko and Komodakis 2016
    ("wide_resnet", {"depth": 28, "width": 10}, 36_479_194, 36.5),
    ("wide_resnet", {"depth": 40, "width": 1}, 563_930, 0.6),
    ("wide_resnet", {"depth": 40, "width": 4}, 8_949_210, 8.9),
    ("resnet50", {}, 25_557_032, None),
    ("wide_resnet50_2", {}, 68_883_240, None),
    ("inception_v3", {}, 27_161_264, None),
    ("inception_small", {}, 1_649_402, None),
]


def blocks(kind: type[nn.Module]) -> Callable[[nn.Module], list[nn.Module]]:
    return lambda network: [module for module in network.modules() if isinstance(module, kind)]


def named(*names: str) -> Callable[[nn.Module], list[nn.Module]]:
    return lambda network: [network.get_submodule(name) for name in names]


STAGES = named("layer1", "layer2", "layer3", "layer4"), [(256, 56, 56), (512, 28, 28), (1024, 14, 14), (2048, 7, 7)]
OF_INCEPTION = [(96, 28, 28), (64, 28, 28), (80, 28, 28), *[(160, 14, 14)] * 4, (144, 14, 14)]
MAPS = [
    # He et al. 2015, section 4.2: map sizes 32, 16, 8 with 16, 32, 64 filters; table 1.
    ("resnet", {"depth": 20}, blocks(BasicBlock), [*[(16, 32, 32)] * 3, *[(32, 16, 16)] * 3, *[(64, 8, 8)] * 3]),
    ("resnet50", {}, *STAGES),
    ("wide_resnet50_2", {}, *STAGES),
    (
        "wide_resnet",
        {"depth": 16, "width": 4},
        blocks(WideBlock),
        [*[(64, 32, 32)] * 2, *[(128, 16, 16)] * 2, *[(256, 8, 8)] * 2],
    ),
    (
        "inception_v3",  # Szegedy et al. 2015, table 1
        {},
        named("Mixed_5d", "Mixed_6e", "AuxLogits", "Mixed_7c", "fc"),
        [(288, 35, 35), (768, 17, 17), (1000,), (2048, 8, 8), (1000,)],
    ),
    (
        "inception_small",  # Zhang et al. 2017, table 1 and figure 3
        {},
        lambda network: network.features,
        [*OF_INCEPTION, (240, 7, 7), *[(336, 7, 7)] * 2],
    ),
]
STARTS = [  # whether for the outputs; how near
    ("resnet", {"depth": 20}, True, 0.15),
    ("wide_resnet", {"depth": 16, "width": 2}, True, 0.15),
    pytest.param("resnet50_bottleneck_cifar", {}, True, 0.1, marks=pytest.mark.slow),
    ("inception_small", {}, False, 0.1),
]


@dataclass(frozen=True)
class Case:
    """A network, the smallest image it takes, and whether its forward pass in training is random.

    A large one computes among the slow tests only.
    """

    builder: Callable[..., nn.Module]
    smallest: int
    options: dict[str, float] = field(default_factory=dict)
    channels: tuple[int, ...] = (1, 3)
    is_random: bool = False
    is_large: bool = False

    def build(self, channels: int = 3, size: int | None = None) -> nn.Module:
        size = self.smallest if size is None else size
        return self.builder(in_channels=channels, image_size=size, num_classes=CLASSES, **self.options)

    def draw(self, batch: int) -> Tensor:
        return torch.randn(batch, 3, self.smallest, self.smallest)


CASES = {
    "lenet": Case(MODELS["lenet"], 4),
    "softmax_regression": Case(MODELS["softmax_regression"], 1),
    "alexnet_small": Case(MODELS["alexnet_small"], 8),
    "resnet": Case(MODELS["resnet"], 4, {"depth": 8}),
    "wide_resnet": Case(WideResNet, 4, {"depth": 10, "width": 2}),
    "wide_resnet with dropout": Case(WideResNet, 4, {"depth": 10, "width": 2, "dropout": 0.3}, is_random=True),
    "resnet50": Case(MODELS["resnet50"], 32, channels=(3,), is_large=True),
    "wide_resnet50_2": Case(MODELS["wide_resnet50_2"], 32, channels=(3,), is_large=True),
    "resnet50_bottleneck_cifar": Case(MODELS["resnet50_bottleneck_cifar"], 8, is_large=True),
    "inception_v3": Case(inception_v3, 299, channels=(3,), is_random=True, is_large=True),
    "inception_small": Case(InceptionSmall, 4),
}
COMPUTED = [name for name in CASES if name != "wide_resnet50_2"]  # which is resnet50 with other numbers of channels


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.slow if CASES[name].is_large else ()) for name in COMPUTED],
)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture(scope="module")
def network(case: Case) -> nn.Module:
    """Built once, because the large ones are slow to build."""
    torch.manual_seed(7)
    return case.build()


def test_the_same_seed_gives_the_same_weights(case: Case, network: nn.Module) -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    again = case.build()
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), again.parameters(), strict=True))
    assert not torch.equal(torch.get_rng_state(), before), "another seed would give the same"


def test_gradients_reach_every_parameter_and_only_dropout_makes_a_forward_pass_random(
    case: Case, network: nn.Module
) -> None:
    torch.manual_seed(1)
    images = case.draw(batch=2)
    before = torch.get_rng_state()
    outputs = network.train()(images)
    assert torch.equal(torch.get_rng_state(), before) is not case.is_random
    several = outputs if isinstance(outputs, tuple) else (outputs,)
    assert [logits.shape for logits in several] == [(2, CLASSES)] * len(several)
    torch.stack([F.cross_entropy(logits, torch.tensor([0, 3])) for logits in several]).sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


def test_evaluation_is_not_random_and_gives_logits(case: Case, network: nn.Module) -> None:
    images = case.draw(batch=2)
    with torch.no_grad():
        logits = network.eval()(images)
        assert torch.equal(network(images), logits)
    assert logits.shape == (2, CLASSES)


def test_shapes_on_the_meta_device(case: Case) -> None:
    """Sizes are found without computing anything: other channels, other images."""
    for channels, size in ((case.channels[0], case.smallest), (case.channels[-1], case.smallest + 5)):
        with torch.device("meta"):
            network = case.build(channels, size).eval()
            assert network(torch.empty(3, channels, size, size)).shape == (3, CLASSES)


@pytest.mark.parametrize("name", ["lenet", "alexnet_small"])
@pytest.mark.parametrize("image_size", [9, 16, 27, 28, 32])
def test_fully_connected_layers_fit_images_of_every_size(name: str, image_size: int) -> None:
    with torch.device("meta"):
        network = CASES[name].build(1, image_size)
        assert network(torch.empty(2, 1, image_size, image_size)).shape == (2, CLASSES)


def made(name: str, options: Mapping[str, int], image_size: int, num_classes: int) -> nn.Module:
    return MODELS[name](in_channels=3, image_size=image_size, num_classes=num_classes, **options)


@pytest.mark.parametrize(("name", "options", "exact", "published_millions"), SIZES)
def test_published_parameter_counts(
    name: str, options: Mapping[str, int], exact: int, published_millions: float | None
) -> None:
    with torch.device("meta"):
        counted = num_parameters(made(name, options, *IMAGES.get(name, (32, 10))))
    assert counted == exact
    assert published_millions in (None, pytest.approx(counted / 1e6, abs=0.06))


@pytest.mark.parametrize(("name", "options", "modules", "expected"), MAPS)
def test_published_maps(
    name: str,
    options: Mapping[str, int],
    modules: Callable[[nn.Module], list[nn.Module]],
    expected: list[tuple[int, ...]],
) -> None:
    image_size, num_classes = IMAGES.get(name, (32, 10))
    with torch.device("meta"):
        network = made(name, options, image_size, num_classes)
    assert maps(network, modules(network), image_size) == expected


@pytest.mark.parametrize(("name", "options", "is_fan_out", "rel"), STARTS)
def test_convolutions_start_with_the_variance_of_he(
    name: str, options: Mapping[str, int], is_fan_out: bool, rel: float
) -> None:
    """For their outputs or their inputs; batch norms, the last of a block too, with scale 1, shift 0."""
    torch.manual_seed(0)
    for module in made(name, options, 32, 10).modules():
        if isinstance(module, nn.Conv2d):
            channels = module.out_channels if is_fan_out else module.in_channels
            fan = channels * module.kernel_size[0] * module.kernel_size[1]
            assert module.weight.std().item() == pytest.approx((2 / fan) ** 0.5, rel=rel)
        if isinstance(module, nn.BatchNorm2d) and module.affine:
            assert module.weight.eq(1).all()
            assert module.bias.eq(0).all()
        if isinstance(module, ConvModule):
            assert module.shift.eq(0).all()


@pytest.mark.parametrize("name", CASES)
def test_a_smaller_image_is_refused_in_one_line(name: str) -> None:
    size = CASES[name].smallest
    rule = rf"^\w+ needs images of .*at least {size}x{size} pixels, got .*image_size={size - 1}$"
    with pytest.raises(ValueError, match=rule):
        CASES[name].build(size=size - 1)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.channels == (3,)])
def test_grey_images_are_refused_in_one_line(name: str) -> None:
    rule = rf"^{name} needs images of 3 channels .*, got in_channels=1, image_size={CASES[name].smallest}$"
    with pytest.raises(ValueError, match=rule):
        CASES[name].build(channels=1)
