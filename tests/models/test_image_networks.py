"""What holds for every image network."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from models.networks import num_parameters
from torch import Tensor, nn
from torch.nn import functional as F

from syncline.models import MODELS
from syncline.models.inception import InceptionSmall, inception_v3
from syncline.models.wide_resnet import WideResNet

CLASSES = 5
PUBLISHED = {"lenet": 62_006, "alexnet_small": 4_579_466, "softmax_regression": 30_730}  # for CIFAR-10


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


@pytest.mark.parametrize("name", PUBLISHED)
def test_sizes_are_those_in_the_docstrings(name: str) -> None:
    with torch.device("meta"):
        assert num_parameters(MODELS[name](in_channels=3, image_size=32, num_classes=10)) == PUBLISHED[name]


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
