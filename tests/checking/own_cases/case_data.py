"""Data sets of the cases of test_own_cases.py; each docstring has its kind, and the public report of such a one."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, random_split

N = 64


class Rows(Dataset):
    """Ordinary: 64 rows of 16 numbers around one centre a class, always alike."""

    num_classes = 4

    def __init__(self, train, size=(16,)):
        centres = np.random.default_rng(7).normal(size=(4, *size))
        self.y = np.arange(N) % 4
        self.x = centres[self.y] + 0.7 * np.random.default_rng(8 + train).normal(size=(N, *size))
        self.x = self.x.astype(np.float32)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], int(self.y[i])


class Labelled(Rows):
    """Labels or targets of a kind."""

    def __init__(self, train, kind):
        super().__init__(train)
        self.kind = kind
        if kind == "gaps":
            self.num_classes = 10

    def __getitem__(self, i):
        y = int(self.y[i])
        kinds = {
            "gaps": lambda: [0, 3, 5, 9][y],  # right: a class of which there is no sample. ultralytics/yolov3#1601
            "ignored": lambda: y if i % 3 else -100,
            "real": lambda: np.float32(self.x[i][:3].sum()),
            "one_hot": lambda: np.eye(4, dtype=np.int64)[y],  # pytorch/pytorch#3670
            "words": lambda: ["cat", "dog", "cow", "pig"][y],  # pytorch/pytorch#5624
        }
        return self.x[i], kinds[self.kind]()


class Images(Rows):
    """Images of a shape and a dtype."""

    def __init__(self, train, size, dtype="float32"):
        super().__init__(train, tuple(size))
        if dtype == "uint8":
            self.x = (255 * (self.x - self.x.min()) / (self.x.max() - self.x.min())).astype(np.uint8)


# Right.


class GlobalNoise(Rows):
    """Random numbers: augmentation by global generators, which are seeded. open-mmlab/OpenPCDet#886"""

    def __init__(self, train):
        super().__init__(train)
        self.scale = 0.1 if train else 0.0

    def __getitem__(self, i):
        noise = np.random.normal(size=16) + torch.distributions.Normal(0.0, 1.0).sample((16,)).numpy()
        return self.x[i] + self.scale * noise.astype(np.float32), int(self.y[i])


class Transformed(Rows):
    """Random numbers: augmentation by a transform, which its file names for training and test."""

    def __init__(self, train, transform):
        super().__init__(train)
        self.scale = {"noisy": 0.1, "plain": 0.0}[transform]

    def __getitem__(self, i):
        return self.x[i] + self.scale * np.random.normal(size=16).astype(np.float32), int(self.y[i])


class Split(Dataset):
    """Random numbers: a split, drawn for training and again for the test. TensorAuto/OpenTau#498"""

    num_classes = 4

    def __init__(self, train):
        rows, order = Rows(True), np.random.permutation(N)
        self.part = random_split(Subset(rows, order), [48, 16])[0 if train else 1]

    def __len__(self):
        return len(self.part)

    def __getitem__(self, i):
        return self.part[i]


def tensors(train):
    """Containers: a TensorDataset, whose file has the number of classes. pytorch/pytorch#80119"""
    rows = Rows(train)
    return TensorDataset(torch.from_numpy(rows.x), torch.from_numpy(rows.y))


class Strict(Rows):
    """Containers: indices are Python's, and from 0 on. pfnet/pfio#136"""

    def __getitem__(self, i):
        assert type(i) is int
        assert 0 <= i < N
        return super().__getitem__(i)


class Handle(Rows):
    """Containers: something is opened at the first sample, and cannot be pickled. pytorch/pytorch#11929"""

    opened = None

    def __getitem__(self, i):
        if self.opened is None:
            self.opened = iter(())
        return super().__getitem__(i)

    def __reduce__(self):
        raise TypeError("no pickles")


class Collated(Rows):
    """Containers: rows of several lengths in a dict, which its `collate_fn` pads."""

    def __getitem__(self, i):
        return {"row": self.x[i][: 16 - i % 3], "label": int(self.y[i])}

    def collate_fn(self, items):
        rows = [torch.nn.functional.pad(torch.from_numpy(each["row"]), (0, 16 - len(each["row"]))) for each in items]
        return torch.stack(rows), torch.tensor([each["label"] for each in items])


# Broken.


class Unseeded(Rows):
    """Random numbers: a generator without a seed, at each sample."""

    def __getitem__(self, i):
        return self.x[i] + np.random.default_rng().normal(size=16).astype(np.float32), int(self.y[i])


class CachedNoise(GlobalNoise):
    """State: it keeps the first augmented sample. tensorflow/tensorflow#47755"""

    def __init__(self, train):
        super().__init__(train)
        self.kept = {}

    def __getitem__(self, i):
        if i not in self.kept:
            self.kept[i] = super().__getitem__(i)
        return self.kept[i]


class Grows(Rows):
    """State: its length grows as it is read. pytorch/pytorch#23587"""

    reads = 0

    def __len__(self):
        return min(N, 32 + self.reads // 8)

    def __getitem__(self, i):
        self.reads += 1
        return super().__getitem__(i)


class Folders(Rows):
    """Labels: the test lacks a folder, so that its classes have other numbers."""

    def __init__(self, train):
        super().__init__(train)
        self.classes = ["cat", "cow", "dog", "pig"] if train else ["cat", "dog", "pig"]


class NotFinite(Rows):
    """A sample of training, or of the test, is not finite."""

    def __init__(self, train, of_train):
        super().__init__(train)
        if train == of_train:
            self.x[37, 3] = np.nan


class InDict(Rows):
    """Forms: a sample is a dict. pytorch/pytorch#50272"""

    def __getitem__(self, i):
        return {"data": self.x[i], "target": int(self.y[i])}


class Ragged(Rows):
    """Forms: rows of several lengths. pytorch/pytorch#42654"""

    def __getitem__(self, i):
        return self.x[i][: 16 - i % 3], int(self.y[i])


class Pictures(Rows):
    """Forms: pictures of PIL, without a transform. pytorch/vision#4272"""

    def __getitem__(self, i):
        from PIL import Image

        return Image.new("RGB", (8, 8)), int(self.y[i])


class Stream(IterableDataset):
    """Containers: samples in their order alone, with a length. vahidk/tfrecord#78"""

    num_classes = 4

    def __init__(self, train):
        self.rows = Rows(train)

    def __len__(self):
        return N

    def __iter__(self):
        return (self.rows[i] for i in range(N))


def loader(train):
    """Containers: a DataLoader in place of its data set. NielsRogge/Transformers-Tutorials#118"""
    return DataLoader(Rows(train), batch_size=8)


def bare(train):
    """Containers: a Subset hides the number of classes. galilai-group/stable-pretraining#402"""
    return Subset(Rows(train), range(48))


class TooLong(Rows):
    """Containers: there are fewer samples than its length says. pytorch/pytorch#82732"""

    def __getitem__(self, i):
        return self.x[:40][i], int(self.y[i])


class Shaped(Images):
    """Names: an argument has the name of something that every data set has."""

    def __init__(self, train, shape):
        super().__init__(train, shape)
