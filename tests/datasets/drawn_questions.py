"""Questions drawn by Hypothesis, and logits that point at the answers."""

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from syncline.datasets.question_windows import Question, Windows


@st.composite
def asked(draw: st.DrawFn, texts: st.SearchStrategy[str], questions: st.SearchStrategy[str]) -> Question:
    """A question with one answer, anywhere in its text."""
    text = draw(texts)
    start = draw(st.integers(0, len(text) - 1))
    stop = draw(st.integers(start + 1, len(text)))
    return Question(draw(questions), text, ((text[start:stop], start),))


def perfect(windows: Windows) -> Tensor:
    """Logits [2, W, L] of the first and of the last token that leave no doubt where the answers are."""
    width = int((windows.begins + np.diff(windows.bounds)[:, 0]).max()) + 1
    logits = torch.zeros(2, len(windows), width)
    for side in (0, 1):
        logits[side, np.arange(len(windows)), windows.answers[:, side]] = 1.0
    return logits
