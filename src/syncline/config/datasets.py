"""Options of the data sets. `tasks` lists what each supports; sizes are numbers of training and test samples.

A run of times alone counts epochs and bytes by `num_train` and `shape`, without loading anything.

`content` is the fingerprint of the files that a data set reads (datasets/files.py). It is part of a run's
identity; the path of the files is not. It is computed when a config is composed and stored with it: a record keeps its
identity without the data, and a process that finds other data refuses them. A run that loads no data (times alone,
where `shape` is known) has none.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from syncline.checks import SEEDS, Checked, ConfigError, check, one_of, ranged
from syncline.datasets.validation import num_held_out
from syncline.shapes import ClickShape, ImageShape, QuestionShape, Shape, TextShape

SPLITS = ("official", "90/10")  # of SQuAD
SAMPLE_SHARINGS = ("partition", "shared")  # see datasets/sharding.py


@dataclass(frozen=True)
class DatasetConfig(Checked):
    """Options of every data set. A size of None stands for all samples."""

    name: str = ""
    train_size: int | None = ranged(None, ">= 1")
    test_size: int | None = ranged(None, ">= 1")
    validation: float | None = ranged(None, "in (0, 1)")  # share of the training samples by which the run is evaluated
    sharing: str = one_of("partition", SAMPLE_SHARINGS)  # how the workers share the training samples
    concentration: float | None = ranged(None, "> 0")  # alpha of each worker's classes; null: shares are alike
    content: str | None = None  # null: computed when the config is composed

    _where = "dataset"
    tasks: ClassVar[tuple[str, ...]] = ()
    full_train_size: ClassVar[int] = 0  # 0: only the data tell
    is_made: ClassVar[bool] = False  # generated, of any size; else it has full_train_size samples

    def __post_init__(self) -> None:
        super().__post_init__()
        most = self.full_train_size
        fits = self.train_size is None or self.is_made or not most or self.train_size <= most
        check(fits, f"dataset.train_size must be <= {most:,}, all that {self.name} has, or null", self.train_size)

    def loader_options(self) -> dict[str, Any]:
        """The arguments of `datasets.registry.load`."""
        options = dataclasses.asdict(self)
        for key in ("content", "validation", "sharing", "concentration", "augment"):
            options.pop(key, None)
        return options

    @property
    def known_num_train(self) -> int | None:
        """Number of samples to train on, without those for validation; None if unknown without the data."""
        num = self._known_num
        return num if num is None or self.validation is None else num - num_held_out(num, self.validation)

    @property
    def _known_num(self) -> int | None:
        """Number of training samples with those for validation."""
        return self.train_size or (self.full_train_size if self._is_published else 0) or None

    @property
    def _is_published(self) -> bool:
        """Whether it is the published data set, whose size is known, and not another file or folder in its place."""
        return True

    @property
    def num_train(self) -> int:
        """As `known_num_train`. Raises ConfigError: unknown without the data."""
        known = self.known_num_train
        if known is None:
            rule = "only the data tell how many samples there are; dataset.train_size must be set"
            raise ConfigError(f"dataset={self.name}: {rule}, got null")
        return known

    @property
    def shape(self) -> Shape | None:
        """The input and output sizes that a model needs; None if unknown without the data."""
        return None


@dataclass(frozen=True)
class ImagesConfig(DatasetConfig):
    augment: bool = False  # pad-crop and flip

    tasks: ClassVar[tuple[str, ...]] = ("classification",)


@dataclass(frozen=True)
class DigitsConfig(ImagesConfig):
    name: str = "digits"

    tasks: ClassVar[tuple[str, ...]] = ("classification", "generation")
    full_train_size: ClassVar[int] = 1437
    size: ClassVar[int] = 8  # pixels a side

    @property
    def shape(self) -> Shape:
        return ImageShape(1, self.size, 10)


@dataclass(frozen=True)
class MnistConfig(DigitsConfig):
    name: str = "mnist"
    root: str = "data"  # holds mnist.npz, or MNIST/raw/
    download: bool = False

    full_train_size: ClassVar[int] = 60_000
    size: ClassVar[int] = 28


@dataclass(frozen=True)
class MnistDigitsConfig(DigitsConfig):
    name: str = "mnist_digits"
    train_size: int | None = ranged(10_000, ">= 1")
    test_size: int | None = ranged(2_000, ">= 1")
    seed: int = ranged(0, SEEDS)  # of the drawing
    label_noise: float = ranged(0.0, "in [0, 1)")  # share of the training labels that are wrong

    full_train_size: ClassVar[int] = 10_000
    is_made: ClassVar[bool] = True
    size: ClassVar[int] = 28


@dataclass(frozen=True)
class GlyphsConfig(ImagesConfig):
    name: str = "glyphs10"
    train_size: int | None = ranged(10_000, ">= 1")
    test_size: int | None = ranged(2_000, ">= 1")
    image_size: int = ranged(32, "in 8 .. 4096")  # pixels a side
    seed: int = ranged(0, SEEDS)  # of the drawing
    label_noise: float = ranged(0.0, "in [0, 1)")  # share of the training labels that are wrong

    full_train_size: ClassVar[int] = 10_000
    is_made: ClassVar[bool] = True

    @property
    def shape(self) -> Shape:
        return ImageShape(3, self.image_size, 100 if self.name == "glyphs100" else 10)


@dataclass(frozen=True)
class CifarConfig(ImagesConfig):
    name: str = "cifar10"
    root: str = "data"  # holds cifar10.npz / cifar100.npz, or torchvision's own folders
    download: bool = False

    full_train_size: ClassVar[int] = 50_000

    @property
    def shape(self) -> Shape:
        return ImageShape(3, 32, 100 if self.name == "cifar100" else 10)


@dataclass(frozen=True)
class ImagenetConfig(ImagesConfig):
    name: str = "imagenet"
    root: str = "data"  # holds imagenet/train/<class>/ and imagenet/val/<class>/
    num_classes: int = ranged(1000, "in 1 .. 1,000,000")
    image_size: int = ranged(224, "in 1 .. 4096")  # pixels a side
    loaders: int = ranged(2, "in 0 .. 1024")  # threads that decode
    augment: bool = True

    full_train_size: ClassVar[int] = 1_281_167

    @property
    def _is_published(self) -> bool:
        return self.num_classes == 1000

    @property
    def shape(self) -> Shape:
        return ImageShape(3, self.image_size, self.num_classes)


@dataclass(frozen=True)
class CriteoConfig(DatasetConfig):
    name: str = "criteo"
    root: str = "data"  # holds criteo/train.txt or train.txt
    file: str | None = None  # another one within root
    cache: str = "~/.cache/syncline"  # folder of parsed files
    buckets: int = ranged(1 << 14, "in 2 .. 67,108,864")  # rows of each field, whose values are hashed
    split_seed: int = ranged(0, SEEDS)  # which tenth is the test part

    tasks: ClassVar[tuple[str, ...]] = ("ctr",)
    full_train_size: ClassVar[int] = 41_256_555

    @property
    def _is_published(self) -> bool:
        return self.file is None

    @property
    def shape(self) -> Shape:
        return ClickShape(13, 26, 26 * self.buckets)


@dataclass(frozen=True)
class CtrSyntheticConfig(DatasetConfig):
    name: str = "ctr_synthetic"
    train_size: int | None = ranged(20_000, ">= 1")
    test_size: int | None = ranged(4_000, ">= 1")
    values: int = ranged(20, "in 2 .. 1,000,000")  # of each categorical field
    seed: int = ranged(0, SEEDS)  # of the factorisation machine and the samples

    tasks: ClassVar[tuple[str, ...]] = ("ctr",)
    full_train_size: ClassVar[int] = 20_000
    is_made: ClassVar[bool] = True

    @property
    def shape(self) -> Shape:
        return ClickShape(13, 26, 26 * self.values)


@dataclass(frozen=True)
class QuestionsConfig(DatasetConfig):
    """Sizes are numbers of questions; a long text yields several samples, one a window."""

    vocab: str = ""  # of the tokeniser: a file, a folder, or minilm
    max_length: int = ranged(384, "in 68 .. 512")  # tokens of a sample
    stride: int = 128  # tokens that neighbouring windows share, >= 0

    tasks: ClassVar[tuple[str, ...]] = ("qa",)
    vocab_sizes: ClassVar[Mapping[str, int]] = {}  # of known vocabularies

    def __post_init__(self) -> None:
        super().__post_init__()
        most = self.max_length - 68  # what the longest question leaves of a window
        check(0 <= self.stride <= most, f"dataset.stride must be in 0 .. max_length - 68 = {most}", self.stride)

    @property
    def shape(self) -> Shape | None:
        size = self.vocab_sizes.get(self.vocab)
        return None if size is None else QuestionShape(size, self.max_length)


@dataclass(frozen=True)
class SquadConfig(QuestionsConfig):
    name: str = "squad"
    root: str = "data"  # holds train-v1.1.json and dev-v1.1.json
    download: bool = False
    split: str = one_of("official", SPLITS)

    full_train_size: ClassVar[int] = 87_599
    vocab_sizes: ClassVar[Mapping[str, int]] = {"minilm": 30_522}


@dataclass(frozen=True)
class QaSyntheticConfig(QuestionsConfig):
    name: str = "qa_synthetic"
    max_length: int = ranged(128, "in 68 .. 512")
    stride: int = 32
    train_size: int | None = ranged(4_000, ">= 1")
    test_size: int | None = ranged(500, ">= 1")
    seed: int = ranged(0, SEEDS)  # of the biographies

    full_train_size: ClassVar[int] = 4_000
    is_made: ClassVar[bool] = True
    vocab_sizes: ClassVar[Mapping[str, int]] = {"": 449, "minilm": 30_522}


@dataclass(frozen=True)
class PydocTextConfig(DatasetConfig):
    name: str = "pydoc_text"
    length: int = ranged(128, "in 1 .. 1,000,000")  # bytes of a training sample

    tasks: ClassVar[tuple[str, ...]] = ("language", "next_token")
    train_bytes: ClassVar[Mapping[str, int]] = {"pydoc_text": 320_001, "text8": 90_000_000, "ptb": 5_101_618}

    def __post_init__(self) -> None:
        super().__post_init__()
        most = self.train_bytes.get(self.name, 0) - 1  # no sample predicts the first byte
        check(most < 0 or self.length <= most, f"dataset.length must be <= {most:,}, or no sample is left", self.length)

    @property
    def _known_num(self) -> int | None:
        if self.train_size is None and self._is_published and self.name in self.train_bytes:
            return (self.train_bytes[self.name] - 1) // self.length
        return self.train_size

    @property
    def shape(self) -> Shape:
        return TextShape(256, self.length)


@dataclass(frozen=True)
class TextConfig(PydocTextConfig):
    name: str = "text"
    root: str = "data"
    path: str | None = None  # within root; None: as published
    download: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.name != "text" or self.path is not None, "dataset.path must be set for dataset=text", self.path)

    @property
    def _is_published(self) -> bool:
        return self.path is None


@dataclass(frozen=True)
class TokensConfig(DatasetConfig):
    """A text as tokens, in files of 16-bit whole numbers (32-bit, if there are more tokens than these can name)."""

    name: str = "tokens"
    root: str = "data"
    path: str | None = None  # of the training tokens, within root
    test_path: str | None = None
    vocab_size: int = ranged(50_257, "in 2 .. 10,000,000")  # of the tokeniser
    length: int = ranged(1024, "in 1 .. 1,000,000")  # tokens of a training sample

    tasks: ClassVar[tuple[str, ...]] = ("next_token",)

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, example in (("path", "train.bin"), ("test_path", "val.bin")):
            given = getattr(self, key)
            check(given is not None, f"dataset.{key} must be set for dataset=tokens, such as {example}", given)

    @property
    def shape(self) -> Shape:
        return TextShape(self.vocab_size, self.length)


@dataclass(frozen=True)
class ArraysConfig(DatasetConfig):
    """Arrays of the user's own; only the file tells their shape and number."""

    name: str = "arrays"
    root: str = "data"
    path: str | None = None  # of the .npz file, within root
    # of labels; null: 0 .. the largest, all of which must occur
    num_classes: int | None = ranged(None, "in 1 .. 1,000,000")

    tasks: ClassVar[tuple[str, ...]] = ("classification", "regression")

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.path is not None, "dataset.path must be set for dataset=arrays, such as mine.npz", self.path)


@dataclass(frozen=True)
class OwnDatasetConfig(DatasetConfig):
    """Options of a data set of the user's own; only the data set tells its shape and number."""

    files: list[str] = field(default_factory=list)  # those that it reads: their bytes are part of a run's identity
    # of labels; null: what its attribute `classes` or `num_classes` says
    num_classes: int | None = ranged(None, "in 1 .. 1,000,000")

    tasks: ClassVar[tuple[str, ...]] = ("classification", "regression")


DATASETS: dict[str, type[DatasetConfig]] = {
    "arrays": ArraysConfig,
    "billion": TextConfig,
    "cifar10": CifarConfig,
    "cifar100": CifarConfig,
    "criteo": CriteoConfig,
    "ctr_synthetic": CtrSyntheticConfig,
    "digits": DigitsConfig,
    "glyphs10": GlyphsConfig,
    "glyphs100": GlyphsConfig,
    "imagenet": ImagenetConfig,
    "mnist": MnistConfig,
    "mnist_digits": MnistDigitsConfig,
    "ptb": TextConfig,
    "pydoc_text": PydocTextConfig,
    "qa_synthetic": QaSyntheticConfig,
    "squad": SquadConfig,
    "text": TextConfig,
    "text8": TextConfig,
    "tokens": TokensConfig,
}
