"""DeepFM against Guo et al. 2017: its three terms, its size, and where its gradient goes."""

from itertools import combinations

import pytest
import torch
from examples import scaled
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from syncline.models.deepfm import DeepFM

NUM_COUNTS, NUM_CATEGORIES, NUM_ROWS = 3, 4, 40


def network(**options: object) -> DeepFM:
    torch.manual_seed(0)
    deepfm = DeepFM(NUM_COUNTS, NUM_CATEGORIES, NUM_ROWS, **{"hidden": (16, 8)} | options)  # type: ignore[arg-type]
    for weight in (deepfm.counts, deepfm.table):
        nn.init.normal_(weight)  # large enough to matter, also in the first order
    return deepfm


def without_mlp(deepfm: DeepFM) -> DeepFM:
    for parameter in deepfm.mlp.parameters():
        nn.init.zeros_(parameter)
    return deepfm


def batch(size: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Counts [B, N] and rows [B, F]; every field owns a quarter of the table."""
    generator = torch.Generator().manual_seed(seed)
    each = NUM_ROWS // NUM_CATEGORIES
    rows = torch.randint(each, (size, NUM_CATEGORIES), generator=generator) + each * torch.arange(NUM_CATEGORIES)
    return torch.randn(size, NUM_COUNTS, generator=generator), rows


@scaled(20)
@given(
    num_counts=st.integers(0, 4),
    num_categories=st.integers(1, 5),
    embedding_size=st.integers(1, 6),
    seed=st.integers(0, 1000),
)
def test_a_zeroed_mlp_leaves_the_factorisation_machine_pair_by_pair(
    num_counts: int, num_categories: int, embedding_size: int, seed: int
) -> None:
    """Equation 2: <w, x> + the sum over pairs of <V_i, V_j> x_i x_j; here over the whole one-hot vector."""
    torch.manual_seed(seed)
    num_rows = 3 * num_categories
    deepfm = without_mlp(DeepFM(num_counts, num_categories, num_rows, embedding_size, hidden=(4,))).double().eval()
    for weight in (deepfm.counts, deepfm.table):
        nn.init.normal_(weight)
    counts = torch.randn(num_counts, dtype=torch.float64)
    rows = 3 * torch.arange(num_categories) + torch.randint(3, (num_categories,))
    x = torch.cat([counts, F.one_hot(rows, num_rows).sum(0).double()])
    first, vectors = torch.cat([deepfm.counts, deepfm.table]).split([1, embedding_size], dim=1)
    expected = x @ first.squeeze(1) + sum(
        (vectors[i] @ vectors[j]) * x[i] * x[j] for i, j in combinations(range(len(x)), 2)
    )
    torch.testing.assert_close(deepfm(counts[None], rows[None]), expected[None])


def test_the_mlp_reads_the_embeddings_of_the_factorisation_machine() -> None:
    """Section 2: "FM component and deep component share the same feature embedding"."""
    deepfm = network(dropout=0.0).eval()
    counts, rows = batch(9)
    embedded = torch.cat([counts[:, :, None] * deepfm.counts[:, 1:], deepfm.table[rows, 1:]], dim=1)
    deep = deepfm.mlp(embedded.flatten(1)).squeeze(1)
    difference = deepfm(counts, rows) - without_mlp(deepfm)(counts, rows)
    torch.testing.assert_close(difference, deep)


def test_a_fresh_network_predicts_about_one_half() -> None:
    """With factors of the usual N(0, 1) the pairs alone would have a standard deviation of about 86."""
    torch.manual_seed(0)
    deepfm = DeepFM(num_counts=13, num_categories=26, num_rows=2600).eval()
    rows = torch.randint(100, (64, 26)) + 100 * torch.arange(26)
    assert deepfm(torch.rand(64, 13), rows).abs().max() < 0.5


@pytest.mark.parametrize("batch_norm", [True, False])
def test_parameters_at_the_size_of_criteo(batch_norm: bool) -> None:
    with torch.device("meta"):
        deepfm = DeepFM(num_counts=13, num_categories=26, num_rows=33_762_577, batch_norm=batch_norm)
    tables = (13 + 33_762_577) * (10 + 1)
    mlp = (39 * 10 + 1) * 400 + 2 * (400 + 1) * 400 + 400 + 1
    size = sum(parameter.numel() for parameter in deepfm.parameters())
    assert size == tables + mlp + 3 * 2 * 400 * batch_norm
    if batch_norm:
        assert size == 371_868_491


def test_the_gradient_of_a_batch_is_added_in_place_where_one_is() -> None:
    deepfm, reference = network(dropout=0.0).double(), network(dropout=0.0).double()
    counts, rows = batch(6)
    before = torch.randn(NUM_ROWS, 11, dtype=torch.float64)
    deepfm.table.grad = view = before.clone()
    deepfm(counts, rows).square().sum().backward()
    reference(counts, rows).square().sum().backward()
    assert deepfm.table.grad is view
    assert view.layout == torch.strided
    assert reference.table.grad is not None
    torch.testing.assert_close(view - before, reference.table.grad, rtol=1e-6, atol=1e-9)
    elsewhere = torch.ones(NUM_ROWS, dtype=torch.bool)
    elsewhere[rows.flatten()] = False
    assert elsewhere.any()
    assert torch.equal(view[elsewhere], before[elsewhere])


def test_autograd_makes_a_sparse_gradient_only_where_a_dense_one_exists() -> None:
    deepfm = network()
    made: list[bool] = []
    deepfm.table.register_hook(lambda gradient: made.append(gradient.is_sparse))
    for _ in range(2):
        deepfm(*batch(6)).sum().backward()
    assert made == [False, True]


def test_the_gradient_added_to_zeros_is_the_dense_one_in_every_bit() -> None:
    deepfm, reference = network(dropout=0.0), network(dropout=0.0)
    deepfm.table.grad = torch.zeros_like(deepfm.table)
    for net in (deepfm, reference):
        net(*batch(50)).square().sum().backward()
    assert reference.table.grad is not None
    assert torch.equal(deepfm.table.grad, reference.table.grad)


@pytest.mark.parametrize("batch_norm", [True, False])
def test_hidden_layers_one_by_one(batch_norm: bool) -> None:
    one = [nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Dropout] if batch_norm else [nn.Linear, nn.ReLU, nn.Dropout]
    mlp = network(batch_norm=batch_norm, dropout=0.3).mlp
    assert [type(layer) for layer in mlp] == [*one, *one, nn.Linear]
    assert [layer.p for layer in mlp if isinstance(layer, nn.Dropout)] == [0.3, 0.3]
