"""DeepFM: a factorisation machine and a multi-layer perceptron on the same embeddings."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

INITIAL_STD = 0.01  # of the factors; ours, the paper gives none


class DeepFM(nn.Module):
    """logit = <w, x> + sum over pairs i < j of <V_i, V_j> x_i x_j + MLP(V_1 x_1, ..., V_m x_m).

    A categorical field's x_i is 1 for its value; a numeric field's x_i is its value. w_i and V_i share one row (column
    0 is w_i): one look-up and one scattered gradient a field instead of two.

    Args:
        num_counts: numeric fields N, >= 0.
        num_categories: categorical fields F, >= 1.
        num_rows: values of all categorical fields together, or buckets if they are hashed; each field owns a range.
        embedding_size: length k of every V_i.
        hidden: units of the MLP's layers.
        dropout: after every hidden layer, in [0, 1).
        batch_norm: between each hidden layer's linear map and its ReLU.

    The gradient of the table. Where the table already has a dense `.grad` (a view into a flat vector, say), the rows of
    the batch are added into it in place and the other rows are not touched; the values are those of the dense gradient.
    Without one autograd creates a dense gradient, as for any module, so that every optimizer of torch works.

    Memory of flat vectors. Gradient, update and message are dense. With n parameters and P workers, one
    simulated run holds weights and gradient (4n bytes each), Adam's two moments (8n) and P + 1 versions (4n each):
    4n (P + 5) bytes. Criteo's 26 categorical fields have 33,762,577 distinct values: n = 371,868,491, 1.49 GB for each
    of weights, gradient, version and message, 2.97 GB for the moments, 13.4 GB in all at P = 4. Hashed to 1,000,000
    rows: n = 11,480,144, 45.9 MB a message, 0.41 GB in all.

    Source: Guo et al. 2017, "DeepFM: A Factorization-Machine based Neural Network for CTR Prediction", equations 1-4;
    section 3.1 for Criteo: dropout 0.5, three hidden layers of 400, ReLU, k = 10. In section 2 a continuous field is
    "the value itself, or a vector of one-hot encoding after discretization": here the value itself. Departures: the
    MLP's output is linear, since equation 1 applies the sigmoid to the sum; batch normalisation, which the paper does
    not have (`batch_norm=False` leaves it out); the initialisation, which the paper does not give, is w = 0 and V from
    N(0, 0.01^2). The pairs are summed as in Rendle 2010, "Factorization Machines", lemma 3.1.
    """

    def __init__(
        self,
        num_counts: int,
        num_categories: int,
        num_rows: int,
        embedding_size: int = 10,
        hidden: Sequence[int] = (400, 400, 400),
        dropout: float = 0.5,
        batch_norm: bool = True,
    ) -> None:
        super().__init__()
        self.counts = nn.Parameter(torch.zeros(num_counts, 1 + embedding_size))
        self.table = nn.Parameter(torch.zeros(num_rows, 1 + embedding_size))
        for weight in (self.counts, self.table):
            nn.init.normal_(weight.data[:, 1:], std=INITIAL_STD)
        layers: list[nn.Module] = []
        width = (num_counts + num_categories) * embedding_size
        for units in hidden:
            layers.append(nn.Linear(width, units))
            if batch_norm:
                layers.append(nn.BatchNorm1d(units))
            layers += [nn.ReLU(), nn.Dropout(dropout)]
            width = units
        self.mlp = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, counts: Tensor, rows: Tensor) -> Tensor:
        """Counts float [B, N] and rows of the table int64 [B, F] -> logits of a click [B]."""
        values = F.embedding(rows, self.table, sparse=self.table.grad is not None)  # [B, F, 1 + k]
        fields = torch.cat([counts.unsqueeze(2) * self.counts, values], dim=1)  # [B, N + F, 1 + k]
        vectors = fields[:, :, 1:]
        pairs = (vectors.sum(dim=1).square() - vectors.square().sum(dim=1)).sum(dim=1) / 2
        deep: Tensor = self.mlp(vectors.flatten(1)).squeeze(1)
        return fields[:, :, 0].sum(dim=1) + pairs + deep
