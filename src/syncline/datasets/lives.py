"""Short generated lives: sentences with blanks, words to fill them, and questions on what was filled in."""

import string

import numpy as np

from syncline.datasets.question_windows import Question

PEOPLE = 2  # in a paragraph
FACTS = 3  # on each of them
QUESTIONS = 4  # on a paragraph
TEST_SHARE = 5  # every fifth name is kept for the test

NAMES = "Ada Boris Clara David Edith Felix Greta Hugo Irene Jonas Karin Louis Marta Niels Olga Peter Rosa Simon".split()
FRONTS = "Bar Bel Cor Dan Fen Gal Har Kel Lan Mar Nor Pen Ros Sel Tor Wes".split()
SURNAME_ENDS = "berg dahl ford gate holm land ley man mark ner rick son ton wall win wood".split()
PLACE_ENDS = "beck bridge burg bury dale field ham haven hurst minster mouth port stead stow ville worth".split()
WORDS = {
    "subject": "botany chemistry geology history law mathematics medicine music philosophy physics zoology".split(),
    "job": "baker carpenter clerk cook doctor farmer gardener nurse painter sailor tailor teacher".split(),
    "topic": "bees birds bridges castles clocks comets dreams glaciers islands rivers trains".split(),
    "month": "January February March April May June July August September October November December".split(),
}
# What may be said of someone, and for each blank how it may be asked for.
FACTS_AND_QUESTIONS = (
    (
        "{name} was born in {place} in {year}.",
        {
            "place": ("Where was {name} born?", "In which town was {name} born?"),
            "year": ("When was {name} born?", "In which year was {name} born?"),
        },
    ),
    (
        "{name} studied {subject} at the University of {place}.",
        {
            "subject": ("What did {name} study?", "Which subject did {name} study?"),
            "place": ("Where did {name} study?", "In which town did {name} study?"),
        },
    ),
    (
        "{name} worked as a {job} in {place}.",
        {
            "job": ("What was {name}'s work?", "As what did {name} work?"),
            "place": ("Where did {name} work?", "In which town did {name} work?"),
        },
    ),
    (
        "{name} married {person} on {date}.",
        {
            "person": ("Who did {name} marry?", "Who was married to {name}?"),
            "date": ("When did {name} marry?", "On which day did {name} marry?"),
        },
    ),
    (
        "{name} wrote {count} books about {topic}.",
        {
            "count": ("How many books did {name} write?", "What is the number of books by {name}?"),
            "topic": ("What did {name} write about?", "About what did {name} write?"),
        },
    ),
    (
        "{name} died in {place}, aged {age}.",
        {
            "place": ("Where did {name} die?", "In which town did {name} die?"),
            "age": ("How old did {name} become?", "At which age did {name} die?"),
        },
    ),
)


def paragraph(generator: np.random.Generator, is_test: bool) -> list[Question]:
    """QUESTIONS questions on one text of PEOPLE x FACTS sentences; whom it is about depends on `is_test`."""
    names: list[str] = []
    while len(names) < PEOPLE:
        name = _name(generator, is_test)
        if name not in names:
            names.append(name)
    kinds = [(name, int(k)) for name in names for k in generator.permutation(len(FACTS_AND_QUESTIONS))[:FACTS]]
    text = ""
    blanks = []  # name, kind, blank, value, where it begins
    for name, kind in generator.permutation(np.array(kinds, dtype=object)):
        text += " " if text else ""
        for literal, blank, _, _ in string.Formatter().parse(FACTS_AND_QUESTIONS[kind][0]):
            text += literal
            if blank is None:
                continue
            value = name if blank == "name" else _value(generator, blank)
            if blank != "name":
                blanks.append((name, kind, blank, value, len(text)))
            text += value
    questions = []
    for number in generator.permutation(len(blanks))[:QUESTIONS]:
        name, kind, blank, value, start = blanks[number]
        asked = generator.choice(FACTS_AND_QUESTIONS[kind][1][blank])
        questions.append(Question(asked.format(name=name), text, ((value, start),)))
    return questions


def _name(generator: np.random.Generator, is_test: bool) -> str:
    while True:
        first, front, end = generator.integers((len(NAMES), len(FRONTS), len(SURNAME_ENDS)))
        if ((first + front + end) % TEST_SHARE == 0) == is_test:
            return f"{NAMES[first]} {FRONTS[front]}{SURNAME_ENDS[end]}"


def _value(generator: np.random.Generator, blank: str) -> str:
    if blank == "place":
        return str(generator.choice(FRONTS) + generator.choice(PLACE_ENDS))
    if blank == "person":
        return _name(generator, bool(generator.integers(2)))
    if blank == "date":
        return f"{generator.integers(1, 29)} {generator.choice(WORDS['month'])} {generator.integers(1800, 2000)}"
    if blank == "year":
        return str(generator.integers(1800, 2000))
    if blank == "count":
        return str(generator.integers(2, 60))
    if blank == "age":
        return str(generator.integers(60, 100))
    return str(generator.choice(WORDS[blank]))


def vocabulary() -> list[str]:
    """Pieces that every text here is made of; names of people and places take two, years too."""
    sentences = [text for sentence, asked in FACTS_AND_QUESTIONS for text in (sentence, *sum(asked.values(), ()))]
    literals = " ".join(literal for text in sentences for literal, *_ in string.Formatter().parse(text))
    words = {word for word in literals.lower().translate(str.maketrans(string.punctuation, " " * 32)).split()}
    words.update(word.lower() for group in (NAMES, FRONTS, *WORDS.values()) for word in group)
    words.update(str(number) for number in range(10, 100))
    words.update(string.digits + string.punctuation + string.ascii_lowercase)
    inside = {f"##{end}" for end in (*SURNAME_ENDS, *PLACE_ENDS)}
    inside.update(f"##{number:02}" for number in range(100))
    inside.update(f"##{character}" for character in string.digits + string.ascii_lowercase)
    return [*sorted(words), *sorted(inside)]
