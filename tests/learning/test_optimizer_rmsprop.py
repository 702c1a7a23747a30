"""RMSProp in TensorFlow 1's form, against the formula of ApplyRMSProp in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syncline.learning.rmsprop import RmsProp


@given(
    st.floats(0, 0.99),
    st.floats(-10, 0).map(lambda exponent: 10**exponent),
    st.one_of(st.just(0.0), st.floats(0.1, 0.99)),
    st.one_of(st.just(0.0), st.floats(1e-5, 0.1)),
    st.integers(5, 20),
)
def test_it_equals_the_formula(alpha: float, eps: float, momentum: float, weight_decay: float, steps: int) -> None:
    generator = np.random.default_rng(0)
    expected = generator.standard_normal(50)
    weights = torch.from_numpy(expected.copy())
    mean_square, moving = np.ones(50), np.zeros(50)
    ours = RmsProp(alpha, eps, momentum, weight_decay, form="tensorflow")
    for step, gradient in enumerate(generator.standard_normal((steps, 50))):
        rate = 0.045 * 0.94**step
        ours.step(weights, torch.from_numpy(gradient.copy()), rate, out=weights)
        gradient += weight_decay * expected
        mean_square = alpha * mean_square + (1 - alpha) * gradient**2
        moving = momentum * moving + rate * gradient / np.sqrt(mean_square + eps)
        expected = expected - moving
        np.testing.assert_allclose(weights.numpy(), expected, rtol=1e-10, atol=1e-13)


def test_the_first_steps_of_inceptions_values_by_hand() -> None:
    """Gradient 2, then 0 at twice the rate: v = 1.3, b = 0.1 * 2 / sqrt(2.3); then b <- 0.9 b, whatever the rate."""
    weights = torch.zeros(1, dtype=torch.float64)
    optimizer = RmsProp(alpha=0.9, eps=1.0, momentum=0.9, weight_decay=0.0, form="tensorflow")
    optimizer.step(weights, torch.tensor([2.0], dtype=torch.float64), 0.1, out=weights)
    first = 0.2 / 2.3**0.5
    assert weights.item() == pytest.approx(-first, rel=1e-12)
    optimizer.step(weights, torch.tensor([0.0], dtype=torch.float64), 0.2, out=weights)
    assert weights.item() == pytest.approx(-1.9 * first, rel=1e-12)


def test_the_forms_are_two_algorithms() -> None:
    """A first gradient of 1: torch divides by sqrt(0.1) + 1, TensorFlow by sqrt(2)."""
    moved = {}
    for form in ("torch", "tensorflow"):
        weights = torch.zeros(1)
        RmsProp(0.9, 1.0, 0.9, 0.0, form).step(weights, torch.ones(1), 1.0, out=weights)
        moved[form] = -weights.item()
    assert moved == pytest.approx({"torch": 1 / (0.1**0.5 + 1), "tensorflow": 2**-0.5}, rel=1e-6)
