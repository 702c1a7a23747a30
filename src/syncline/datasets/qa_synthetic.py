"""Questions about generated biographies: known words, unknown facts."""

from itertools import chain, count, islice

from syncline.datasets.biographies import ask, pieces
from syncline.datasets.question_windows import Question
from syncline.datasets.questions import QuestionDataset, question_dataset
from syncline.datasets.streams import Purpose, stream
from syncline.datasets.wordpiece import SPECIAL, read_vocabulary, vocabulary_file

DEFAULT_TRAIN, DEFAULT_TEST = 4_000, 500


def qa_synthetic(
    vocab: str = "",
    max_length: int = 128,
    stride: int = 32,
    seed: int = 0,
    train_size: int | None = None,
    test_size: int | None = None,
) -> QuestionDataset:
    """Four questions on each text of four sentences about two people; needs no file and no download.

    People of the test do not occur in training. A text has several towns, years and numbers, so that the kind of a word
    alone does not answer a question. A data set of size n is a prefix of any larger one.

    Args:
        vocab: '' for its own vocabulary, 449 pieces; else BERT's, see `vocabulary_file`.
        max_length: tokens of a row, 68..512; with 128 every text is one window.
        stride: tokens that neighbouring windows of a text share.
        seed: >= 0, of the biographies.
        train_size: training questions, >= 1; None for 4,000.
        test_size: test questions, >= 1; None for 500.

    Raises:
        DataMissingError: no such vocabulary.
        ValueError: an argument out of range.

    Source: ours; a substitute for SQuAD, with its windows, tokeniser and score.
    """
    train_size = DEFAULT_TRAIN if train_size is None else train_size
    test_size = DEFAULT_TEST if test_size is None else test_size
    if train_size < 1 or test_size < 1 or seed < 0:
        given = f"train_size={train_size}, test_size={test_size}, seed={seed}"
        raise ValueError(f"qa_synthetic: sizes must be >= 1, seed >= 0; got {given}")
    train, test = _part(Purpose.TRAIN_QUESTIONS, train_size, seed), _part(Purpose.TEST_QUESTIONS, test_size, seed)
    vocabulary = read_vocabulary(vocabulary_file(vocab, root=".")) if vocab else [*SPECIAL, *pieces()]
    return question_dataset("qa_synthetic", train, test, vocabulary, max_length, stride)


def _part(purpose: Purpose, size: int, seed: int) -> list[Question]:
    is_test = purpose is Purpose.TEST_QUESTIONS
    texts = (ask(stream(purpose, number, 0, seed), is_test) for number in count())
    return list(islice(chain.from_iterable(texts), size))
