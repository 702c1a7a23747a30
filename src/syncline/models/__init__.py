"""Models: plain nn.Module, chosen by name. Of this project they import torchvision_compat only."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from .alexnet import AlexNetSmall
from .bert import Bert
from .bottleneck import photograph_resnet, resnet50_bottleneck_cifar
from .char_lstm import CharLstm
from .deepfm import DeepFM
from .draw import Draw
from .gpt import Gpt
from .inception import InceptionSmall, inception_v3
from .lenet import LeNet
from .mlp import mlp
from .resnet import CifarResNet
from .softmax_regression import SoftmaxRegression
from .wide_resnet import WideResNet

MODELS: dict[str, Callable[..., nn.Module]] = {
    "alexnet_small": AlexNetSmall,
    "bert": Bert,
    "char_lstm": lambda length, **options: CharLstm(**options),  # for texts of any length
    "deepfm": DeepFM,
    "gpt": lambda length, **options: Gpt(max_length=length, **options),
    "draw": lambda num_classes, **options: Draw(**options),  # has no classes
    "inception_small": InceptionSmall,
    "inception_v3": inception_v3,
    "lenet": LeNet,
    "mlp": mlp,
    "resnet": CifarResNet,
    "resnet50": partial(photograph_resnet, "resnet50"),
    "resnet50_bottleneck_cifar": resnet50_bottleneck_cifar,
    "softmax_regression": SoftmaxRegression,
    "wide_resnet": WideResNet,
    "wide_resnet50_2": partial(photograph_resnet, "wide_resnet50_2"),
}


def build(name: str, **options: Any) -> nn.Module:
    """A newly initialised model; its weights come from torch's global generator.

    Args:
        name: a key of MODELS.
        options: arguments of its class: the sizes of the data (images: in_channels, image_size, num_classes).

    Raises:
        ValueError: sizes that the model does not support.
    """
    if "sample_shape" in options and name != "mlp":
        raise ValueError(f"samples of the form {options['sample_shape']} are for model=mlp or one of your own")
    return MODELS[name](**options)
