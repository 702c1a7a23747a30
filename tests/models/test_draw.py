"""DRAW against Gregor et al. 2015: its filters, its patches, and that its output bounds the likelihood."""

import math

import pytest
import torch
from examples import scaled
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from syncline.models.draw import AttentiveRead, AttentiveWrite, Draw, divergence_from_prior, filterbank

reals = st.floats(-1e3, 1e3, width=32)


def pixels(batch: int, channels: int, size: int) -> Tensor:
    return torch.rand(batch, channels, size, size, generator=torch.Generator().manual_seed(5)).round()


def small(channels: int = 1, size: int = 6, glimpses: int = 3, attention: bool = True) -> Draw:
    torch.manual_seed(0)
    return Draw(channels, size, glimpses, hidden_size=12, latent_size=4, read_size=2, write_size=3, attention=attention)


def look_at_everything(attention: nn.Module) -> None:
    """Filters a pixel apart (for a patch as large as the image), one pixel wide, gamma = 1."""
    with torch.no_grad():
        attention.linear.weight.zero_()
        attention.linear.bias.copy_(torch.tensor([0.0, 0.0, -8.0, 0.0, 0.0]))


@scaled(50)
@given(
    centre=reals,
    log_stride=st.floats(-20, 20, width=32),
    log_variance=st.floats(-20, 20, width=32),
    num_filters=st.integers(1, 8),
    num_pixels=st.integers(1, 30),
)
def test_every_filter_adds_up_to_one_at_any_position(
    centre: float, log_stride: float, log_variance: float, num_filters: int, num_pixels: int
) -> None:
    filters = filterbank(
        torch.tensor([centre]), torch.tensor([log_stride]).exp(), torch.tensor([log_variance]), num_filters, num_pixels
    )
    assert filters.shape == (1, num_filters, num_pixels)
    torch.testing.assert_close(filters.sum(dim=2), torch.ones(1, num_filters))


def test_filters_against_equations_19_and_25_written_out() -> None:
    centre, stride, variance, num_filters, num_pixels = 4.3, 1.7, 0.8, 3, 9
    expected = torch.empty(num_filters, num_pixels, dtype=torch.float64)
    for i in range(1, num_filters + 1):
        mean = centre + (i - num_filters / 2 - 0.5) * stride
        for a in range(1, num_pixels + 1):
            expected[i - 1, a - 1] = math.exp(-((a - mean) ** 2) / (2 * variance))
    expected /= expected.sum(dim=1, keepdim=True)
    made = filterbank(
        *(torch.tensor([value], dtype=torch.float64) for value in (centre, stride, math.log(variance))),
        num_filters,
        num_pixels,
    )
    torch.testing.assert_close(made[0], expected)


@pytest.mark.parametrize(("size", "patch"), [(28, 2), (28, 5), (7, 3), (6, 1)])
def test_a_fresh_patch_covers_the_image(size: int, patch: int) -> None:
    """Section 3.2: the scaling ensures that "the initial patch (with a randomly initialised network) roughly covers the
    whole input image"; exactly, where the decoder's output is 0."""
    attention = AttentiveRead(hidden_size=4, image_size=size, patch_size=patch).attention
    nn.init.zeros_(attention.linear.bias)
    rows, columns, log_gamma = attention(torch.zeros(1, 4))
    assert torch.equal(rows, columns)
    assert log_gamma.item() == 0
    middle = (size - 1) / 2
    ends = [0, size - 1] if patch > 1 else [math.floor(middle)]
    assert [rows[0, 0].argmax().item(), rows[0, -1].argmax().item()] == [ends[0], ends[-1]]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [5, 8])
def test_a_patch_as_large_as_the_image_is_the_image(channels: int, size: int) -> None:
    images, hidden = pixels(2, channels, size), torch.randn(2, 4)
    read = AttentiveRead(4, size, size)
    write = AttentiveWrite(4, channels, size, size)
    for attention in (read.attention, write.attention):
        look_at_everything(attention)
    torch.testing.assert_close(read(images, hidden), images.flatten(1))
    torch.testing.assert_close(write(hidden), write.linear(hidden).unflatten(1, (channels, size, size)))


def test_writing_is_the_adjoint_of_reading_with_gamma_inverted() -> None:
    """<write(w), x> gamma^2 = <w, read(x)> where both have the same attention (equations 27 and 29)."""
    torch.manual_seed(0)
    read, write = AttentiveRead(4, 9, 3).double(), AttentiveWrite(4, 2, 9, 3).double()
    write.attention.load_state_dict(read.attention.state_dict())
    images, hidden = torch.randn(5, 2, 9, 9).double(), torch.randn(5, 4).double()
    gamma = torch.exp(read.attention(hidden)[2])
    assert (gamma - 1).abs().min() > 0.01
    written = (write(hidden) * images).sum(dim=(1, 2, 3))
    torch.testing.assert_close(written * gamma**2, (write.linear(hidden) * read(images, hidden)).sum(dim=1))


def test_rows_and_columns_are_not_mixed_up() -> None:
    """g_X moves the patch along a row of pixels, g_Y along a column."""
    read = AttentiveRead(hidden_size=1, image_size=9, patch_size=1)
    with torch.no_grad():
        read.attention.linear.weight.zero_()
        read.attention.linear.bias.copy_(torch.tensor([0.4, -0.6, -8.0, 0.0, 0.0]))  # x = 7, y = 2, from 1
    images = torch.zeros(1, 1, 9, 9)
    images[0, 0, 1, 6] = 1
    assert read(images, torch.zeros(1, 1)).item() == pytest.approx(1)


def test_divergence_is_that_of_torch_added_up_over_the_dimensions() -> None:
    """Equation 10."""
    mean, log_std = torch.randn(3, 4), torch.randn(3, 4)
    normal = torch.distributions.Normal
    each = torch.distributions.kl_divergence(normal(mean, log_std.exp()), normal(0.0, 1.0))
    torch.testing.assert_close(divergence_from_prior(mean, log_std), each.sum(dim=1))


@pytest.mark.parametrize("attention", [True, False])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_network_that_draws_nothing_costs_log_2_per_pixel_and_the_divergence(channels: int, attention: bool) -> None:
    draw = small(channels, attention=attention)
    for module in (draw.write.linear, draw.posterior):
        nn.init.zeros_(module.weight)
        nn.init.zeros_(module.bias)
    images = pixels(5, channels, 6)
    torch.testing.assert_close(draw(images), torch.full((5,), channels * 36 * math.log(2)))
    nn.init.constant_(draw.posterior.bias, 0.5)  # mean 1/2, standard deviation e^(1/2), 3 glimpses of 4 dimensions
    divergence = 3 * 4 * (0.25 + math.e - 1 - 1) / 2
    torch.testing.assert_close(draw(images), torch.full((5,), channels * 36 * math.log(2) + divergence))


@pytest.mark.parametrize("attention", [True, False])
def test_the_bound_on_average_and_the_likelihood_it_bounds_by_integrals(attention: bool) -> None:
    """One glimpse, one latent dimension, 2x2 pixels: an integral over a line for each of the 16 images."""
    torch.manual_seed(3)
    draw = Draw(1, 2, glimpses=1, hidden_size=5, latent_size=1, read_size=2, write_size=2, attention=attention)
    for parameter in draw.parameters():
        nn.init.normal_(parameter, std=0.7)
    images = torch.tensor([[float(number >> bit & 1) for bit in range(4)] for number in range(16)]).view(16, 1, 2, 2)
    z = torch.linspace(-20, 20, 4001)

    def start(state: Tensor, count: int) -> tuple[Tensor, ...]:
        return state[:, None].expand(-1, count, -1).unbind()

    with torch.no_grad():
        logits = draw.first_canvas + draw.write(draw.decoder(z[:, None], start(draw.first_decoder, len(z)))[0])
        given = -F.binary_cross_entropy_with_logits(
            logits[:, None].expand(-1, 16, -1, -1, -1), images.expand(len(z), -1, -1, -1, -1), reduction="none"
        ).sum(dim=(2, 3, 4))  # log P(x | z) [4001, 16]
        prior = torch.distributions.Normal(0.0, 1.0).log_prob(z)
        exact = -torch.logsumexp(given + prior[:, None], dim=0) - math.log(40 / 4000)

        decoder = start(draw.first_decoder, 16)[0]
        glimpse = draw.read(torch.cat([images, images - torch.sigmoid(draw.first_canvas)], dim=1), decoder)
        encoder = draw.encoder(torch.cat([glimpse, decoder], dim=1), start(draw.first_encoder, 16))[0]
        mean, log_std = draw.posterior(encoder).chunk(2, dim=1)
        posterior = torch.distributions.Normal(mean[:, 0], log_std[:, 0].exp()).log_prob(z[:, None])
        expected = divergence_from_prior(mean, log_std) - (torch.softmax(posterior, dim=0) * given).sum(dim=0)

        samples = draw(images.repeat(4000, 1, 1, 1)).view(4000, 16)
    assert torch.exp(-exact).sum().item() == pytest.approx(1, abs=1e-4)
    assert (expected > exact).all()
    assert log_std.abs().max() > 0.2
    assert ((samples.mean(dim=0) - expected).abs() < 5 * samples.std(dim=0) / 4000**0.5).all()


@pytest.mark.parametrize("attention", [True, False])
@pytest.mark.parametrize(("channels", "size"), [(1, 3), (1, 8), (3, 5), (2, 11)])
def test_a_bound_and_a_gradient_for_every_size(channels: int, size: int, attention: bool) -> None:
    draw = small(channels, size, attention=attention)
    bound = draw(pixels(4, channels, size))
    assert bound.shape == (4,)
    bound.mean().backward()
    for name, parameter in draw.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


def test_certain_pixels_stay_finite() -> None:
    draw, images = small(), pixels(3, 1, 6)
    nn.init.constant_(draw.first_canvas, 500.0)
    bound = draw(images)
    bound.sum().backward()
    assert bound.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in draw.parameters() if parameter.grad is not None)
    assert (bound > 400 * (1 - images).sum(dim=(1, 2, 3))).all()
