"""Rows of a click log, in memory or mapped from a file, and their batches.

Legend: N rows for training, M for the test, B in a batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from syncline.datasets.batch_source import Batch
from syncline.datasets.errors import checked_size
from syncline.datasets.validation import split
from syncline.shapes import ClickShape

NUM_COUNTS, NUM_CATEGORIES = 13, 26  # of Criteo's logs

# A row is contiguous, 160 bytes, so that reading a random one touches one page of the disk, rarely two.
RECORD = np.dtype([("counts", "<f4", (NUM_COUNTS,)), ("rows", "<i4", (NUM_CATEGORIES,)), ("clicked", "<f4")])
TEST_BATCH = 4096

Records = npt.NDArray[np.void]  # of RECORD


@dataclass(frozen=True)
class ClickDataset:
    """Counts and categories of impressions, and whether each was clicked.

    Raises:
        ValueError: a part without rows.
    """

    name: str
    train: Records  # [N]; may be mapped from a file, read-only
    test: Records  # [M]
    num_rows: int  # of the joint embedding table: values of all categorical fields together
    chances: npt.NDArray[np.float64] | None = None  # [M], the true probability of each click, if known

    def __post_init__(self) -> None:
        assert self.train.dtype == self.test.dtype == RECORD
        if not len(self.train) or not len(self.test):
            raise ValueError(f"dataset {self.name}: {len(self.train)} training rows and {len(self.test)} for the test")

    @property
    def shape(self) -> ClickShape:
        return ClickShape(NUM_COUNTS, NUM_CATEGORIES, self.num_rows)

    @property
    def num_train(self) -> int:
        return len(self.train)

    @property
    def best(self) -> dict[str, float]:
        """AUC and log loss (nats) of the true probabilities on the test set: no model is better, except by chance.

        Empty if they are not known; without the AUC if all or none were clicked.
        """
        if self.chances is None:
            return {}
        from sklearn.metrics import log_loss, roc_auc_score  # takes a second, and is rarely needed

        clicked = self.test["clicked"]
        loss = float(log_loss(clicked, self.chances, labels=[0, 1]))
        has_both = 0 < clicked.sum() < len(clicked)
        return {"auc": float(roc_auc_score(clicked, self.chances)), "loss": loss} if has_both else {"loss": loss}

    def first(self, train_size: int | None, test_size: int | None) -> "ClickDataset":
        """Of each part the first so many rows; None keeps all. Raises ValueError: there are fewer."""
        train = self.train[: checked_size(self.name, "train_size", train_size, len(self.train))]
        test = self.test[: checked_size(self.name, "test_size", test_size, len(self.test))]
        return replace(self, train=train, test=test)

    def with_validation(self, share: float) -> "ClickDataset":
        """The chances of the held-out clicks are not known."""
        rest, held = split(self.num_train, share)
        return replace(self, train=self.train[rest], test=self.train[held], chances=None)

    def batch_source(self, device: torch.device, task: str) -> "ClickSource":
        assert task == "ctr"
        return ClickSource(self, device)


class ClickSource:
    """Batches of counts float32 [B, 13], rows of the joint table int64 [B, 26] and clicked float32 [B]."""

    is_random = False

    def __init__(self, dataset: ClickDataset, device: torch.device) -> None:
        self._dataset, self._device = dataset, device

    def take(self, indices: npt.NDArray[np.int64], generator: np.random.Generator | None) -> Batch:
        return self._batch(self._dataset.train[indices])

    def test(self) -> Iterator[Batch]:
        test = self._dataset.test
        for begin in range(0, len(test), TEST_BATCH):
            yield self._batch(test[begin : begin + TEST_BATCH])

    def _batch(self, records: Records) -> Batch:
        counts = torch.from_numpy(records["counts"].copy())
        rows = torch.from_numpy(records["rows"].astype(np.int64))
        clicked = torch.from_numpy(records["clicked"].copy())
        return tuple(tensor.to(self._device) for tensor in (counts, rows, clicked))
