"""LeNet: its published size."""

from models.networks import num_parameters

from syncline.models.lenet import LeNet


def test_62006_parameters_for_cifar10() -> None:
    assert num_parameters(LeNet(in_channels=3, image_size=32, num_classes=10)) == 62_006
