"""Flat vectors are the module, seen another way."""

import torch
from torch import nn

from syncline.learning.flat import FlatModule
from syncline.models import build


def test_the_vectors_are_the_parameters_gradients_and_buffers():
    torch.manual_seed(0)
    module = build("resnet", depth=8, in_channels=3, image_size=8, num_classes=10)
    expected = torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])
    flat = FlatModule(module)
    assert torch.equal(flat.weights, expected)
    flat.weights.add_(1)
    assert torch.equal(torch.cat([p.detach().reshape(-1) for p in module.parameters()]), expected + 1)
    nn.functional.cross_entropy(module(torch.randn(4, 3, 8, 8)), torch.arange(4)).backward()
    assert torch.equal(torch.cat([p.grad.reshape(-1) for p in module.parameters()]), flat.gradient)
    assert flat.gradient.abs().sum() > 0
    running = torch.cat([b.reshape(-1) for b in module.buffers() if b.is_floating_point()])
    assert torch.equal(flat.buffers, running)


def test_a_module_that_was_built_in_evaluation_mode_is_trained():
    flat = FlatModule(nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)).eval())
    assert all(part.training for part in flat.module.modules())


def test_gradients_go_straight_into_the_flat_vector_again_and_again():
    flat = FlatModule(nn.Linear(3, 2))
    addresses = [parameter.grad.data_ptr() for parameter in flat.module.parameters()]
    for _ in range(3):
        flat.gradient.zero_()
        flat.module(torch.ones(1, 3)).sum().backward()
        assert [parameter.grad.data_ptr() for parameter in flat.module.parameters()] == addresses
        assert torch.equal(flat.gradient, torch.ones(8))


def test_blocks_are_joined_on_loading():
    flat = FlatModule(nn.Linear(3, 2))
    flat.load([torch.arange(3.0), torch.arange(3.0, 8.0)], torch.empty(0))
    assert torch.equal(flat.module.weight.detach().reshape(-1), torch.arange(6.0))
    assert torch.equal(flat.module.bias.detach(), torch.tensor([6.0, 7.0]))


def test_gradient_or_weights_lie_in_one_piece_with_buffers_and_extra_elements():
    module = build("resnet", depth=8, in_channels=3, image_size=8, num_classes=10)
    flat = FlatModule(module, num_extra=3)
    for number, tensor in enumerate((flat.gradient, flat.buffers, flat.extra, flat.weights)):
        tensor.fill_(number)
    sizes = [tensor.numel() for tensor in (flat.gradient, flat.buffers, flat.extra, flat.weights)]
    assert flat.with_gradient.unique_consecutive(return_counts=True)[1].tolist() == sizes[:3]
    values, counts = flat.with_weights.unique_consecutive(return_counts=True)
    assert values.tolist() in ([1, 2, 3], [1, 2, 0, 3])  # zeros bring the weights to an aligned place
    assert (counts[0], counts[1], counts[-1]) == (sizes[1], sizes[2], sizes[3])
    assert flat.weights.data_ptr() % 64 == 0
    assert flat.beside.numel() == sizes[1] + sizes[2]
    assert all((parameter == 3).all() for parameter in module.parameters())
    assert [view.shape for view in flat.layout.views(flat.gradient)] == [each.shape for each in module.parameters()]
