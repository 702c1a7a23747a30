"""Questions on generated lives: words that the network has met, facts that it has not."""
from itertools import count, chain, islice
from syncline.datasets.lives import vocabulary, paragraph, QUESTIONS
from syncline.datasets.questions import QuestionDataset, question_dataset
from syncline.datasets.question_windows import Question
from syncline.datasets.streams import Purpose, stream
from syncline.datasets.wordpiece import SPECIAL, read_vocabulary, vocabulary_file

def qa_synthetic(vocab: str = "", max_length: int = 128, stride: int = 32, seed: int = 0, train_size: int | None = None, test_size: int | None = None) -> QuestionDataset:
    words = [*SPECIAL, *vocabulary()] if not vocab else read_vocabulary(vocabulary_file(vocab, "."))
    return question_dataset("qa_synthetic", _part(Purpose.TRAIN_QUESTIONS, train_size or 4000, seed), _part(Purpose.TEST_QUESTIONS, test_size or 500, seed), words, max_length, stride)

def _part(purpose: Purpose, size: int, seed: int) -> list[Question]:
    paragraphs = (paragraph(stream(purpose, number, 0, seed), purpose is Purpose.TEST_QUESTIONS) for number in count())
    return list(islice(chain.from_iterable(paragraphs), size))
