"""The flat optimizer against torch.optim on the same gradients."""

import pytest
import torch
from torch import Tensor, nn

from syncline.learning.optimizer import Sgd


def gradients(sizes: list[tuple[int, ...]], steps: int) -> list[list[Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [[torch.randn(size, generator=generator) for size in sizes] for _ in range(steps)]


SIZES: list[tuple[int, ...]] = [(7, 3, 3), (5,), (1,), (33, 17)]  # odd ones: vector code has tails


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 1e-4])
def test_it_equals_torch_in_every_bit(momentum, weight_decay):
    start = gradients(SIZES, 1)[0]
    parameters = [nn.Parameter(tensor.clone()) for tensor in start]
    theirs = torch.optim.SGD(parameters, lr=0.1, momentum=momentum, weight_decay=weight_decay)
    ours, weights = Sgd(momentum, weight_decay), torch.cat([tensor.reshape(-1) for tensor in start])
    for step, given in enumerate(gradients(SIZES, 20)):
        theirs.param_groups[0]["lr"] = rate = 0.1 if step < 10 else 0.01
        for parameter, gradient in zip(parameters, given, strict=True):
            parameter.grad = gradient.clone()
        theirs.step()
        following = torch.empty_like(weights)
        ours.step(weights, torch.cat([gradient.reshape(-1) for gradient in given]), rate, out=following)
        weights = following
        assert torch.equal(weights, torch.cat([parameter.detach().reshape(-1) for parameter in parameters]))


def test_blocks_are_independent_of_each_other():
    given = torch.randn(20, 11, generator=torch.Generator().manual_seed(1))
    whole, parts = torch.zeros(11), [torch.zeros(4), torch.zeros(7)]
    one, two = Sgd(0.9, 0.01), [Sgd(0.9, 0.01), Sgd(0.9, 0.01)]
    for gradient in given:
        one.step(whole, gradient.clone(), 0.1, out=whole)
        for optimizer, part, piece in zip(two, parts, gradient.split([4, 7]), strict=True):
            optimizer.step(part, piece.clone(), 0.1, out=part)
    assert torch.equal(whole, torch.cat(parts))


def test_the_two_forms_of_momentum_differ_only_after_the_rate_changes():
    """MXNet keeps the rate inside the buffer: at constant rate it is torch's, after a drop old gradients count more."""
    weights = {form: torch.zeros(3, dtype=torch.float64) for form in ("torch", "lr_inside")}
    optimizers = {form: Sgd(0.9, 0.0, form) for form in weights}
    for step in range(6):
        for form, optimizer in optimizers.items():
            optimizer.step(
                weights[form], torch.ones(3, dtype=torch.float64), 0.1 if step < 4 else 0.01, out=weights[form]
            )
        same = torch.allclose(weights["torch"], weights["lr_inside"], rtol=0, atol=1e-12)
        assert same is (step < 4)
    # by hand: b = 3.439 after four steps; then torch moves by 0.01 (0.9 b + 1), MXNet by 0.9 * 0.1 b + 0.01
    b, moved = 3.439, 0.1 * (1 + 1.9 + 2.71 + 3.439)
    torch_form = moved + 0.01 * (0.9 * b + 1) + 0.01 * (0.9 * (0.9 * b + 1) + 1)
    inside = 0.09 * b + 0.01
    assert weights["torch"][0].item() == pytest.approx(-torch_form, abs=1e-12)
    assert weights["lr_inside"][0].item() == pytest.approx(-(moved + inside + 0.9 * inside + 0.01), abs=1e-12)


def test_the_state_survives_saving():
    given = torch.randn(10, 5, generator=torch.Generator().manual_seed(2))
    straight, broken_off = Sgd(0.9, 0.1), Sgd(0.9, 0.1)
    weights, others = torch.zeros(5), torch.zeros(5)
    for step, gradient in enumerate(given):
        straight.step(weights, gradient.clone(), 0.1, out=weights)
        if step == 4:
            restored = Sgd(0.9, 0.1)
            restored.load_state_dict(broken_off.state_dict())
            broken_off = restored
        broken_off.step(others, gradient.clone(), 0.1, out=others)
    assert torch.equal(weights, others)
