"""DRAW: an auto-encoder that draws an image in glimpses, each of which changes the canvas.

Shape legend: B batch, C channels, S height and width in pixels, H hidden units, Z latent, N filters a side of a patch.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def filterbank(centre: Tensor, stride: Tensor, log_variance: Tensor, num_filters: int, num_pixels: int) -> Tensor:
    """N Gaussian filters a stride apart along a side of the image, each with weights that add up to 1.

    F[i, a] = exp(-(a - mu_i)^2 / (2 sigma^2)) / Z_i,  mu_i = centre + (i - N/2 - 1/2) stride,  a = 1..S,  i = 1..N

    Args:
        centre: in pixels, [..., B], of one side or of several; the first pixel is at 1, the last at S.
        stride: in pixels, [B].
        log_variance: log sigma^2, [B].

    Returns:
        [..., B, N, S].

    Source: Gregor et al. 2015, equations 19, 20, 25 and 26. The normaliser is a softmax's, so that a filter far outside
    the image takes the nearest pixel instead of 0 / 0.
    """
    steps = torch.arange(num_filters, device=centre.device) - (num_filters - 1) / 2
    means = centre[..., None] + steps * stride[:, None]  # [..., B, N]
    pixels = torch.arange(1, num_pixels + 1, device=centre.device)
    exponent = (pixels - means[..., None]).square() / -2 * torch.exp(-log_variance)[:, None, None]
    return torch.softmax(exponent, dim=-1)


def divergence_from_prior(mean: Tensor, log_std: Tensor) -> Tensor:
    """Kullback-Leibler divergence of N(mean, std^2), both [B, ...], from N(0, 1), in nats, [B] (as (11))."""
    return (mean.square() + torch.exp(2 * log_std) - 2 * log_std - 1).flatten(1).sum(dim=1) / 2


class Attention(nn.Module):
    """Position and weight of an N x N patch from the decoder's state: equations 21-24.

    Initially the patch covers nearly the whole image.
    """

    def __init__(self, hidden_size: int, image_size: int, patch_size: int) -> None:
        super().__init__()
        self.image_size = image_size
        self.patch_size = patch_size
        self.linear = nn.Linear(hidden_size, 5)

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """State [B, H] -> filters of the rows and of the columns, [B, N, S] each, and log gamma [B]."""
        x, y, log_variance, log_stride, log_gamma = self.linear(hidden).unbind(dim=1)
        widest = (self.image_size - 1) / max(self.patch_size - 1, 1)
        centre = (self.image_size + 1) / 2 * (torch.stack([y, x]) + 1)
        stride = widest * torch.exp(log_stride)
        rows, columns = filterbank(centre, stride, log_variance, self.patch_size, self.image_size).unbind()
        return rows, columns, log_gamma


class AttentiveRead(nn.Module):
    """A patch of every channel: gamma F_Y x F_X^T (equation 27)."""

    def __init__(self, hidden_size: int, image_size: int, patch_size: int) -> None:
        super().__init__()
        self.attention = Attention(hidden_size, image_size, patch_size)

    def forward(self, images: Tensor, hidden: Tensor) -> Tensor:
        """Images [B, C, S, S] and state [B, H] -> [B, C N N]."""
        rows, columns, log_gamma = self.attention(hidden)
        patches: Tensor = rows[:, None] @ (images @ columns.transpose(1, 2)[:, None])  # [B, C, N, N]
        return patches.flatten(1) * torch.exp(log_gamma)[:, None]


class AttentiveWrite(nn.Module):
    """A patch of every channel, written to the image: F_Y^T w F_X / gamma (equations 28 and 29)."""

    def __init__(self, hidden_size: int, in_channels: int, image_size: int, patch_size: int) -> None:
        super().__init__()
        self.shape = (in_channels, patch_size, patch_size)
        self.attention = Attention(hidden_size, image_size, patch_size)
        self.linear = nn.Linear(hidden_size, in_channels * patch_size**2)

    def forward(self, hidden: Tensor) -> Tensor:
        """State [B, H] -> change of the canvas [B, C, S, S]."""
        rows, columns, log_gamma = self.attention(hidden)
        patches = self.linear(hidden) * torch.exp(-log_gamma)[:, None]
        change: Tensor = rows.transpose(1, 2)[:, None] @ patches.view(-1, *self.shape) @ columns[:, None]
        return change


class WholeRead(nn.Module):
    """Reads the whole image (equation 17)."""

    def forward(self, images: Tensor, hidden: Tensor) -> Tensor:
        """Images [B, C, S, S] -> [B, C S S]."""
        return images.flatten(1)


class WholeWrite(nn.Module):
    """Writes to the whole image (equation 18)."""

    def __init__(self, hidden_size: int, in_channels: int, image_size: int) -> None:
        super().__init__()
        self.shape = (in_channels, image_size, image_size)
        self.linear = nn.Linear(hidden_size, in_channels * image_size**2)

    def forward(self, hidden: Tensor) -> Tensor:
        """State [B, H] -> change of the canvas [B, C, S, S]."""
        change: Tensor = self.linear(hidden).view(-1, *self.shape)
        return change


class Draw(nn.Module):
    """Encoder and decoder LSTM with a sample of a latent vector at each of T glimpses.

    The output is the loss: an upper bound on an image's negative log-likelihood, one sample of the latent vectors for
    each image, from torch's global generator.

    Args:
        in_channels: image channels C, >= 1; all are read and written through the same filters.
        image_size: height and width S in pixels.
        glimpses: T, >= 1.
        hidden_size: units H of encoder and of decoder.
        latent_size: length Z of each latent vector.
        read_size, write_size: side N of the patch read and of the patch written; ignored without attention.
        attention: read and write patches (section 3.2) or the whole image (section 3.1).

    Source: Gregor et al. 2015, "DRAW: A Recurrent Neural Network For Image Generation"; table 3 for MNIST: 64 glimpses,
    H = 256, Z = 100, reading 2x2, writing 5x5. Equation 11's constant T/2 is for each of the Z dimensions. The initial
    states of both LSTMs (and cells) and the initial canvas are learned. The paper gives no initialisation: here
    Glorot's for all matrices, 0 for all else.
    """

    samples = True  # the output is random, also in evaluation

    def __init__(
        self,
        in_channels: int,
        image_size: int,
        glimpses: int = 64,
        hidden_size: int = 256,
        latent_size: int = 100,
        read_size: int = 2,
        write_size: int = 5,
        attention: bool = True,
    ) -> None:
        super().__init__()
        self.glimpses = glimpses
        self.latent_size = latent_size
        self.read: nn.Module
        self.write: nn.Module
        if attention:
            self.read = AttentiveRead(hidden_size, image_size, read_size)
            self.write = AttentiveWrite(hidden_size, in_channels, image_size, write_size)
            num_read = 2 * in_channels * read_size**2
        else:
            self.read = WholeRead()
            self.write = WholeWrite(hidden_size, in_channels, image_size)
            num_read = 2 * in_channels * image_size**2
        self.encoder = nn.LSTMCell(num_read + hidden_size, hidden_size)
        self.posterior = nn.Linear(hidden_size, 2 * latent_size)
        self.decoder = nn.LSTMCell(latent_size, hidden_size)
        self.first_canvas = nn.Parameter(torch.zeros(in_channels, image_size, image_size))
        self.first_encoder = nn.Parameter(torch.zeros(2, hidden_size))  # hidden, cell
        self.first_decoder = nn.Parameter(torch.zeros(2, hidden_size))
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.LSTMCell):
                for parameter in module.parameters():
                    if parameter.ndim == 2:
                        nn.init.xavier_uniform_(parameter)
                    else:
                        nn.init.zeros_(parameter)

    def forward(self, pixels: Tensor) -> Tensor:
        """Pixels [B, C, S, S], each 0 or 1 -> bound in nats of each image [B]; the equations in brackets."""
        num_images = len(pixels)
        canvas = self.first_canvas.expand_as(pixels)
        encoder = self.first_encoder[:, None].expand(-1, num_images, -1).unbind()
        decoder = self.first_decoder[:, None].expand(-1, num_images, -1).unbind()
        posteriors = []  # parameters of each, [B, 2 Z]
        for noise in torch.randn(self.glimpses, num_images, self.latent_size, dtype=pixels.dtype, device=pixels.device):
            error = pixels - torch.sigmoid(canvas)  # (3)
            glimpse = self.read(torch.cat([pixels, error], dim=1), decoder[0])  # (4)
            encoder = self.encoder(torch.cat([glimpse, decoder[0]], dim=1), encoder)  # (5)
            posteriors.append(self.posterior(encoder[0]))
            mean, log_std = posteriors[-1].chunk(2, dim=1)  # (1), (2)
            decoder = self.decoder(mean + torch.exp(log_std) * noise, decoder)  # (6), (7)
            canvas = canvas + self.write(decoder[0])  # (8)
        divergence = divergence_from_prior(*torch.stack(posteriors, dim=1).chunk(2, dim=2))  # (10)
        reconstruction = F.binary_cross_entropy_with_logits(canvas, pixels, reduction="none").flatten(1).sum(dim=1)
        return reconstruction + divergence  # (9), (12)
