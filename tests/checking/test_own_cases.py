"""Parts as users bring them: right ones are trained as an ordinary loop trains them, broken ones told in one sentence.

Each case is of a kind, which its class in own_cases/ names, with the public report (`repo#number`) of such a one: no
part is theirs.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from own import using, write

from runners.commands import main
from syncline.assembly.data import load_dataset
from syncline.checking import learning
from syncline.checking.learning import check_learning
from syncline.config import RunConfig, compose
from syncline.config.folders import VARIABLE
from syncline.simulation.run import simulate
from syncline.targets import fault

CASES = Path(__file__).parent / "own_cases"
METRICS = "metrics: {accuracy: higher, loss: lower}\n"
MODULES = {
    "models": "model",
    "broken_models": "model",
    "data": "dataset",
    "tasks": "task",
    "optimizers": "optimizer",
    "strategies": "strategy",
}  # case_....py -> group
FILES = {  # beside one for each class, which is its target alone
    "model/TenClasses": "_target_: case_models.AnyClasses\nnum_classes: 10\n",
    "model/ManyKeys": "_target_: case_models.Two\ndepth: 2\n",
    "model/NoModule": "_target_: builtins.dict\n",
    "dataset/Tensors": "_target_: case_data.tensors\nnum_classes: 4\n",
    "dataset/Wide": "_target_: case_data.Images\nsize: [3, 6, 10]\n",
    "dataset/ChannelsLast": "_target_: case_data.Images\nsize: [8, 8, 3]\n",
    "dataset/Bytes": "_target_: case_data.Images\nsize: [3, 8, 8]\ndtype: uint8\n",
    "dataset/Shaped": "_target_: case_data.Shaped\nshape: [3, 8, 8]\n",
    "dataset/NotFiniteTrain": "_target_: case_data.NotFinite\nof_train: true\n",
    "dataset/NotFiniteTest": "_target_: case_data.NotFinite\nof_train: false\n",
    "dataset/Transformed": "_target_: case_data.Transformed\ntrain: {train: true, transform: noisy}\n"
    "test: {train: false, transform: plain}\n",
    "optimizer/AdamW": "_target_: torch.optim.AdamW\n",
    "optimizer/Adam": "_target_: torch.optim.Adam\n",
    "optimizer/Adafactor": "_target_: torch.optim.Adafactor\n",
    "optimizer/Foreach": "_target_: torch.optim.Adam\nforeach: true\namsgrad: true\n",
    "optimizer/Muon": "_target_: torch.optim.Muon\n",
    "optimizer/LBFGS": "_target_: torch.optim.LBFGS\n",
    **{f"dataset/{kind}": f"_target_: case_data.Labelled\nkind: {kind}\n" for kind in
       ("gaps", "ignored", "real", "one_hot", "words")},
}  # fmt: skip
USUAL = {
    "dataset": "digits dataset.train_size=200 dataset.test_size=60",
    "model": "mlp model.hidden=[16]",
    "batch_size": "16",
    "device": "cpu",
}

RIGHT = [
    "model=Two",
    # Storage.
    "model=Slices",
    "model=Transposed",
    "model=ChannelsLast",
    # Made late, state, attributes that are no leaves, kinds of numbers.
    "model=LazyTable",
    "model=KeepsPenalty task=Penalty",
    "model=PythonList",
    "model=RelativeIndex",
    # Hooks, no gradient.
    "model=GradientHook",
    "model=AccumulateHook",
    "model=LayerDrop optimizer.weight_decay=0.05 optimizer.momentum=0.9",
    "model=FreezesInTrain",
    "model=NamedHead",
    # Random numbers.
    "model=NumpyOrder",
    "model=NumpyNoise",
    "model=FunctionalDropout",
    # Batch norm, the input, names and methods.
    "model=BatchStatistics",
    "model=FrozenEachPass",
    "model=AlwaysTraining",
    "model=scripted",
    "model=SamplesAttribute",
    "model=TrainReturnsNone",
    "model=Delegates",
    "model=OwnStateDict",
    # Outputs.
    "model=LikeTransformers",
    "model=Auxiliary",
    "model=TenClasses",
    "model=Symbols text=letters",
    # Losses and evaluations.
    "model=softmax_regression task=MixUp",
    "task=Proxies",
    "task=RunningNorms",
    "task=Attack",
    "task=LeavesEvaluation model=Delegates",
    "task=LeavesTraining model=Delegates",
    "task=AttacksTest",
    "task=Recalibrates model=Normed",
    # Targets and labels.
    "model=OneOutput task=Huber arrays=prices_real",
    "dataset=gaps",
    "dataset=ignored",
    "arrays=ignored",
    # Images.
    "arrays=pixels",
    "model=Pixels dataset=Wide",
    "model=Pixels dataset=Bytes",
    # Data sets.
    "dataset=GlobalNoise",
    "dataset=Transformed dataset.validation=0.25",
    "dataset=Split",
    "dataset=Tensors",
    "dataset=Strict",
    "model=Two dataset=Handle",
    "dataset=Collated dataset.train_size=48",
    # Optimizers.
    "optimizer=Adafactor",
    "model=Matrices optimizer=Muon",
    "optimizer=Factored",
    "optimizer=ClipsAll",
    "optimizer=ScheduleFree",
    "optimizer=RateOfGroups",
    "optimizer=by_names",
    "model=LayerDrop optimizer=AdamW optimizer.schedule.warmup_epochs=1",
    "optimizer=Foreach",
]
ROUNDED = {"model=ChannelsLast", "optimizer=ClipsAll", "optimizer=Foreach"}  # sums in another order

BROKEN = {
    # Storage.
    "model=Overlap": "q and k share memory",
    # Made late, made anew, changed in a pass.
    "model=lazy": "1.weight has no shape before the first forward pass",
    "model=Clipped": "a pass changes the parameter i.weight",
    # State.
    "model=Counts": "attribute passes",
    "model=CumulativeNorm": "buffer bn.num_batches_tracked, of whole numbers",
    "model=Remembers": "keep no state but parameters and buffers",
    "model=Teacher": "what is kept are trained parameters",
    "model=Average": "average: a pass replaces this buffer; it must be changed in place",
    # Random numbers.
    "model=Unseeded": "projection differs when the model is built again",
    # Batch norm, names and methods, kinds of numbers and gradients.
    "model=Synchronised": "SyncBatchNorm would need the batches of all workers",
    "model=Normed batch_size=1": "Expected more than 1 value per channel",
    "model=TrainFits": "train must be the method of a torch.nn.Module",
    "model=NeedsWidth": "missing a required argument: 'width'",
    "model=ManyKeys": "got an unexpected keyword argument 'depth'",
    "model=NoModule": "must return a torch.nn.Module, got dict",
    "model=Sparse": "its gradient must be dense",
    "model=Double": "must have parameters and buffers of torch.float32, got torch.float64 of i.weight",
    # Outputs.
    "model=AnyClasses": "12 outputs a sample, for 10 classes; `num_classes: 10` in its file",
    "model=AnyClasses model.num_classes=10": "in its file",
    "model=OneOutput": "1 outputs a sample, too few for the label",
    "model=FewLogits": "task=classification: the model must return logits [B, classes, ...]",
    "model=Raises": "KeyError: 'x'",
    "model=NoNumber": "the loss of an ordinary loop is no finite number at step 1",
    # Losses and evaluations.
    "task=RunningLoss": "attribute task.average",
    "task=DropsGradients": "must not be replaced (sparse=False, no zero_grad)",
    "task=NeverReset": "the metrics of the same weights differ the second time",
    "task=NoAutograd": "does not require grad",
    "task=OtherMetrics": "evaluate must return accuracy, loss, got acc",
    # Random numbers and state of a data set.
    "dataset=Unseeded": "the data set returns another sample for the same index",
    "dataset=CachedNoise": "other samples when it is built again and read in another order",
    "dataset=Grows": "must keep its length while it is read, got 32 and ",
    "dataset=GlobalNoise dataset.validation=0.25": "dataset.validation would evaluate augmented samples",
    # Labels and values.
    "dataset=Folders": "the classes of training and test must be the same in the same order, got cat, cow, dog",
    "dataset=one_hot": "for labels [B, ...], one whole number each, got",
    "dataset=words": "got a tuple in it",
    "dataset=real": "task=regression",
    "dataset=NotFiniteTrain": "training sample 37 of the data set holds nan: data must be finite",
    "dataset=NotFiniteTest": "test sample 37 of the data set holds nan: data must be finite",
    "arrays=prices_real": "task=regression",
    # Images.
    "model=lenet dataset=ChannelsLast": "samples of the form (8, 8, 3) are for model=mlp or one of your own",
    "dataset=Bytes": "pixels must be real numbers (transform: ToTensor, or x / 255), got torch.uint8",
    # Forms and containers of samples.
    "dataset=InDict": "a sample must be a tuple such as (image, label)",
    "dataset=Ragged": "samples cannot be stacked: ",
    "dataset=Pictures": "PIL.Image.Image",
    "dataset=Stream": "must have __getitem__ and __len__, got a Stream",
    "dataset=loader": "must have __getitem__ and __len__, got a DataLoader",
    "dataset=bare": "must have an attribute num_classes or classes, or its file num_classes",
    "model=Two dataset=TooLong": "IndexError: index ",
    "dataset=Shaped": "key shape must have another name",
    # Optimizers.
    "optimizer=Muon": "2D parameters",
    "optimizer=LBFGS": "closure",
    "optimizer=SlowWeights": "stopped and resumed in the middle",
    "optimizer=KeepsIterator": "keeps what no checkpoint can hold: its state_dict must have tensors, numbers and texts",
    "optimizer=ReadsAttribute": "AttributeError: 'Parameter' object has no attribute 'scaled_grad'",
    "optimizer=NoDecay optimizer.weight_decay=0.1": "takes no weight_decay: optimizer.weight_decay must be 0, got 0.1",
    "optimizer=OwnRate": "its step changes the lr of a group",
    "optimizer=Draws": "optimizer=Draws may depend on more than parameters, gradients and its rate",
    "optimizer=Plain strategy=asp cluster.shards=5": "5 shards must each have a whole tensor of the model's",
    # Strategies.
    "strategy=Gossip cluster.workers=4": "groups(turn, num_workers) must return the same at every call",
    "strategy=Halves cluster.workers=4": "groups(turn, num_workers) must have each of 4 workers in one group",
    "strategy=OwnPeer cluster.workers=4": "peers(turn, num_workers) must name other workers of 4, each once",
}  # fmt: skip


def _arrays() -> dict[str, dict[str, np.ndarray]]:
    """Those of dataset=arrays, by the names of their files: 64 samples for training, 32 for the test."""
    generator = np.random.default_rng(0)
    y = np.arange(96) % 4
    rows = generator.normal(size=(96, 16)) + y[:, None]

    def pixels(*shape: int) -> np.ndarray:
        return (generator.integers(0, 100, size=(96, *shape)) + 50 * y.reshape(-1, *[1] * len(shape))).astype(np.uint8)

    pairs = {
        "pixels": (pixels(6, 6), y),
        "ignored": (rows, np.where(np.arange(96) % 3, y, -100)),
        "prices_real": (rows, 1.0 + y),
    }
    return {name: {"x_train": x[:64], "y_train": y[:64], "x_test": x[64:], "y_test": y[64:]}
            for name, (x, y) in pairs.items()}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """With a choice for each class and function of own_cases/, and FILES; used by all of these tests."""
    made = tmp_path_factory.mktemp("own")
    files = {f"{name}.yaml": text for name, text in FILES.items()} | {"letters.txt": "a word, and another\n" * 200}
    for name, group in MODULES.items():
        for part in re.findall(r"^(?:class|def) (\w+)", (CASES / f"case_{name}.py").read_text(), re.MULTILINE):
            text = f"_target_: case_{name}.{part}\n" + METRICS * (group == "task")
            files.setdefault(f"{group}/{part}.yaml", text)
    write(made, files)
    for name, found in _arrays().items():
        np.savez(made / f"{name}.npz", **found)
    with using(CASES, made), pytest.MonkeyPatch.context() as quicker:
        quicker.setattr(learning, "NUM_TIMED", 2)
        quicker.setattr(learning, "NUM_STEPS", 10)
        yield made


@pytest.fixture
def configured(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """words -> config."""
    monkeypatch.setenv(VARIABLE, f"{CASES}:{folder}")

    def made(words: str, *more: str) -> RunConfig:
        words = re.sub(r"arrays=(\w+)", rf"dataset=arrays dataset.path={folder}/\1.npz", words)
        words = re.sub(r"text=(\w+)", rf"dataset=text dataset.path={folder}/\1.txt dataset.length=16", words)
        usual = [f"{group}={name}" for group, name in USUAL.items() if not re.search(rf"\b{group}=", words)]
        return compose([*" ".join([*usual, words]).split(), *more])[0]

    return made


def told(configured, words: str) -> Sequence[str]:
    """What `syncline check` says of the faults of these parts."""
    try:
        config = configured(words)
        faults = check_learning(config, None).faults
        if config.cluster.shards > 1:
            simulate(config, lambda row: None, lambda progress: None)
        return faults
    except Exception as error:
        line = str(error) if isinstance(error, ValueError) else fault(error)
        return [f"a traceback\n{error!r}"] if line is None or __file__ in line else [line]


@pytest.mark.parametrize("words", RIGHT)
def test_a_right_part_is_trained_as_an_ordinary_loop_trains_it(configured, words: str) -> None:
    """And alike when it is built again, and when it is stopped and resumed."""
    found = check_learning(configured(words), None)
    assert found.faults == []
    assert len(found.compared) == 6
    assert max(apart for _, _, apart in found.compared) <= (1e-5 if words in ROUNDED else 0), found.compared


@pytest.mark.parametrize("words", BROKEN)
def test_a_broken_part_is_told_in_one_sentence(configured, words: str) -> None:
    lines = told(configured, words)
    assert len(lines) == 1, lines
    assert "\n" not in lines[0]
    assert BROKEN[words] in lines[0]


@pytest.mark.processes
def test_layers_in_the_order_of_a_set_are_found_by_real_processes(folder: Path, monkeypatch, capsys) -> None:
    """That order is another one in each process (its hash seed)."""
    monkeypatch.setenv(VARIABLE, f"{CASES}:{folder}")
    words = "model=SetOrder dataset=digits dataset.train_size=200 dataset.test_size=60 strategy=asp"
    assert main(["check", *words.split()]) == 1
    said = capsys.readouterr().out
    assert "FAULT: real processes end at other weights" in said
    assert "such as the order of a set" in said
    assert said.count("FAULT") == 1


# Values that a loop on the same config does not tell.


@pytest.mark.parametrize(("optimizer", "lr", "weight_decay"), [("AdamW", 0.001, 0.01), ("Adam", 0.001, 0.0)])
def test_an_optimizer_of_torch_keeps_its_own_defaults(
    configured, optimizer: str, lr: float, weight_decay: float
) -> None:
    config = configured(f"optimizer={optimizer}")
    assert (config.optimizer.lr, config.optimizer.weight_decay) == (lr, weight_decay)
    config = configured(f"optimizer={optimizer} optimizer.weight_decay=0.2")
    assert (config.optimizer.lr, config.optimizer.weight_decay) == (lr, 0.2)


def test_a_split_that_is_drawn_twice_has_no_sample_in_both(configured) -> None:
    data = load_dataset(configured("dataset=Split"))
    rows = [tuple(x.tolist()) for part in (data.train, data.testing) for x, _ in part]
    assert len(set(rows)) == len(rows) == 64


def test_held_out_samples_are_read_as_those_of_the_test(configured) -> None:
    data = load_dataset(configured("dataset=Transformed dataset.validation=0.25"))
    stored = {tuple(x.tolist()) for x in data.held_out.x}
    assert all(tuple(x.tolist()) in stored for x, _ in data.testing)
    assert not any(tuple(x.tolist()) in stored for x, _ in data.train)


def test_momentum_of_local_steps_is_torchs_default(configured) -> None:
    config = configured("strategy=bsp", "local.steps=2", "local.optimizer={name: sgd, lr: 0.1}")
    assert config.local.optimizer.momentum == 0
