"""RMSProp in TensorFlow 1's form, against the formula of ApplyRMSProp in float64."""

import numpy as np
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
