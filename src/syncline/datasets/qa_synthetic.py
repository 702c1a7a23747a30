"""Questions about short generated biographies: known words, unknown facts.

A biography is made of sentences with blanks and of words that fill them; the questions are about these words.
"""

import string
from itertools import chain, count, islice

import numpy as np

from syncline.datasets.question_windows import Question
from syncline.datasets.questions import QuestionDataset, question_dataset
from syncline.datasets.streams import Purpose, stream
from syncline.datasets.wordpiece import SPECIAL, read_vocabulary, vocabulary_file

DEFAULT_TRAIN, DEFAULT_TEST = 4_000, 500
PEOPLE = 2  # in a text
FACTS = 2  # on each of them
QUESTIONS = 4  # on a text
TEST_SHARE = 5  # every fifth name is reserved for the test

LEXICON = {
    kind: words.split()
    for kind, words in {
        "first name": "Ada Clara David Edith Felix Greta Hugo Irene Jonas Karin Louis Marta Niels Olga Peter Rosa",
        "front": "Bar Bel Cor Dan Fen Gal Har Kel Lan Mar Nor Pen Ros Sel Tor Wes",  # of a surname or a town
        "surname end": "berg dahl ford gate holm land ley man mark ner rick son ton wall win wood",
        "town end": "beck bridge burg bury dale field ham haven hurst minster mouth port stead stow ville worth",
        "month": "January February March April May June July August September October November December",
        "subject": "botany chemistry geology history law mathematics medicine music philosophy physics zoology",
        "job": "baker carpenter clerk cook doctor farmer gardener nurse painter sailor tailor teacher",
        "topic": "bees birds bridges castles clocks comets dreams glaciers islands rivers trains",
    }.items()
}
NUMBERS = {"year": (1800, 2000), "count": (2, 60), "age": (60, 100)}  # from, below
# Statements about a person and, for each of their blanks, the questions for it.
FACTS_AND_QUESTIONS = tuple(
    {
        "{name} was born in {place} in {year}.": {
            "place": ("Where was {name} born?", "In which town was {name} born?"),
            "year": ("When was {name} born?", "In which year was {name} born?"),
        },
        "{name} studied {subject} at the University of {place}.": {
            "subject": ("What did {name} study?", "Which subject did {name} study?"),
            "place": ("Where did {name} study?", "In which town did {name} study?"),
        },
        "{name} worked as a {job} in {place}.": {
            "job": ("What was {name}'s work?", "As what did {name} work?"),
            "place": ("Where did {name} work?", "In which town did {name} work?"),
        },
        "{name} married {person} on {date}.": {
            "person": ("Who did {name} marry?", "Who was married to {name}?"),
            "date": ("When did {name} marry?", "On which day did {name} marry?"),
        },
        "{name} wrote {count} books about {topic}.": {
            "count": ("How many books did {name} write?", "What is the number of books by {name}?"),
            "topic": ("What did {name} write about?", "About what did {name} write?"),
        },
        "{name} died in {place}, aged {age}.": {
            "place": ("Where did {name} die?", "In which town did {name} die?"),
            "age": ("How old did {name} become?", "At which age did {name} die?"),
        },
    }.items()
)


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

    Source: ours; a substitute for SQuAD, with its windows, tokeniser and score.
    """
    train = _part(Purpose.TRAIN_QUESTIONS, train_size or DEFAULT_TRAIN, seed)
    test = _part(Purpose.TEST_QUESTIONS, test_size or DEFAULT_TEST, seed)
    vocabulary = read_vocabulary(vocabulary_file(vocab, root=".")) if vocab else [*SPECIAL, *pieces()]
    return question_dataset("qa_synthetic", train, test, vocabulary, max_length, stride)


def _part(purpose: Purpose, size: int, seed: int) -> list[Question]:
    is_test = purpose is Purpose.TEST_QUESTIONS
    texts = (ask(stream(purpose, number, 0, seed), is_test) for number in count())
    return list(islice(chain.from_iterable(texts), size))


def ask(generator: np.random.Generator, is_test: bool) -> list[Question]:
    """QUESTIONS different questions on one text of PEOPLE x FACTS sentences in random order.

    Args:
        generator: the only source of randomness.
        is_test: chooses the people: those of the test do not occur in training.
    """
    names: list[str] = []
    while len(names) < PEOPLE:
        name = _name(generator, is_test)
        if name not in names:
            names.append(name)
    facts = [(name, int(kind)) for name in names for kind in generator.permutation(len(FACTS_AND_QUESTIONS))[:FACTS]]
    text = ""
    questions = []  # question, answer, its first character
    for number in generator.permutation(len(facts)):
        name, kind = facts[number]
        sentence, asked = FACTS_AND_QUESTIONS[kind]
        text += " " if text else ""
        for literal, blank, _, _ in string.Formatter().parse(sentence):
            text += literal
            if blank and blank in asked:
                answer = _fill(generator, blank)
                questions.append((str(generator.choice(asked[blank])).format(name=name), answer, len(text)))
                text += answer
            elif blank:
                text += name
    chosen = generator.permutation(len(questions))[:QUESTIONS]
    return [Question(question, text, ((answer, start),)) for question, answer, start in (questions[i] for i in chosen)]


def _name(generator: np.random.Generator, is_test: bool) -> str:
    kinds = [LEXICON[kind] for kind in ("first name", "front", "surname end")]
    while True:
        picks = generator.integers([len(words) for words in kinds])
        if (picks.sum() % TEST_SHARE == 0) == is_test:
            first, front, end = (words[pick] for words, pick in zip(kinds, picks, strict=True))
            return f"{first} {front}{end}"


def _fill(generator: np.random.Generator, blank: str) -> str:
    if blank == "person":
        return _name(generator, is_test=bool(generator.integers(2)))
    if blank == "place":
        return _fill(generator, "front") + _fill(generator, "town end")
    if blank == "date":
        return f"{generator.integers(1, 29)} {_fill(generator, 'month')} {_fill(generator, 'year')}"
    if blank in NUMBERS:
        return str(generator.integers(*NUMBERS[blank]))
    return str(generator.choice(LEXICON[blank]))


def pieces() -> list[str]:
    """WordPieces for all these texts: two for a surname, a town or a year, one for any other word."""
    sentences = [text for sentence, asked in FACTS_AND_QUESTIONS for text in (sentence, *chain(*asked.values()))]
    literals = (literal for text in sentences for literal, *_ in string.Formatter().parse(text))
    ends = {*LEXICON["surname end"], *LEXICON["town end"]}
    words = " ".join([*literals, *(word for word in chain(*LEXICON.values()) if word not in ends)]).lower()
    for mark in string.punctuation:
        words = words.replace(mark, " ")
    characters = {*string.ascii_lowercase, *string.digits}
    whole = {*words.split(), *characters, *string.punctuation, *(f"{number}" for number in range(10, 100))}
    inside = {*ends, *characters, *(f"{number:02}" for number in range(100))}
    return [*sorted(whole), *sorted(f"##{piece}" for piece in inside)]
