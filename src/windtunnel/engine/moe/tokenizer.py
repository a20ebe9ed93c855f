"""The reference model's tokenizer: byte-level pairs, learned from a list of words, kept as a `tokenizer.json`.

Any text is tokens, and every token that the model answers with is printable ASCII, so an answer's text is its tokens'
texts one after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from windtunnel.errors import EngineConfigError

SPECIAL = ("<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
END = 0
"""The token that ends an answer."""
ROLES = {"system": 1, "developer": 1, "user": 2, "assistant": 3}
"""Of messages: the token that each begins with."""
FILE = "tokenizer.json"
_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "eos_token": SPECIAL[END],
    "clean_up_tokenization_spaces": False,
    "chat_template": "{% for message in messages %}"
    "<|{{ 'system' if message['role'] == 'developer' else message['role'] }}|>{{ message['content'] }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
}
"""For other clients' tokenizers. The template says in their language what `chat_tokens` does."""

_WORDS = tuple("""
the of and to in is that for it as was with be by on not he his but at are this have from or had an they which one you
were all her she there would their we him been has when who will no more if out so what up said its about than into them
can only other time new some could these two may first then do any like my now over such our man me even most made after
also did many off before must well back through years where much your way down should because long each just state those
people too mister little how good make world still own see men work here get both between life being under three never
know same last another while us might great old year come since against go came right used take use himself house during
without again place around however home small found thought went say part once general high upon school every
request response server client token tokens stream batch cache block memory expert experts rank ranks layer layers model
weight weights route router load balance move copy read write send receive fast slow wind tunnel measure latency
throughput error failure retry recover restore replace publish epoch slot slots node network transfer prompt answer
begin end start stop wait ready alive dead kill hang again answer question number count mean median least most rate
import return value string function class object list array index range print file line test check open close
water light sound stone river mountain forest garden window morning evening winter summer letter paper music story
""".split())  # noqa: SIM905  # fmt: skip


def _pairs(num_merges: int) -> list[tuple[str, str]]:
    """The pairs to join, the most frequent first; as byte-pair encoding learns them (Sennrich et al., 2016)."""
    words = [["Ġ", *word] if spaced else list(word) for word in _WORDS for spaced in (True, False)]
    known: set[str] = set()
    merges: list[tuple[str, str]] = []
    while len(merges) < num_merges:
        counts = Counter(pair for word in words for pair in pairwise(word))
        fresh = {pair: count for pair, count in counts.items() if "".join(pair) not in known}
        if not fresh:
            break
        best = min(fresh, key=lambda pair: (-fresh[pair], pair))
        merges.append(best)
        known.add("".join(best))
        words = [_joined(word, best) for word in words]
    return merges


def _joined(word: list[str], pair: tuple[str, str]) -> list[str]:
    result: list[str] = []
    for part in word:
        if result and (result[-1], part) == pair:
            result[-1] += part
        else:
            result.append(part)
    return result


def make_tokenizer(vocabulary_size: int) -> Tokenizer:
    """A tokenizer with so many tokens. Raises EngineConfigError where they are too few for the bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    least = len(SPECIAL) + len(alphabet)
    if vocabulary_size < least:
        raise EngineConfigError(
            "vocabulary_size", str(vocabulary_size), f"Give at least {least}: every byte is a token."
        )
    merges = _pairs(vocabulary_size - least)
    words = [*SPECIAL, *alphabet, *("".join(pair) for pair in merges)]
    words += [f"<|reserved {number}|>" for number in range(vocabulary_size - len(words))]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in words if word.startswith("<|")])
    return tokenizer


def write_tokenizer(vocabulary_size: int, folder: Path) -> None:
    """Make the tokenizer's files in a model's folder, which other clients read too."""
    make_tokenizer(vocabulary_size).save(str(folder / FILE))
    (folder / "tokenizer_config.json").write_bytes(msgspec.json.format(msgspec.json.encode(_CONFIG), indent=2))


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a model's folder."""
    return Tokenizer.from_file(str(folder / FILE))


def chat_tokens(messages: Sequence[tuple[str, list[int]]]) -> list[int]:
    """A prompt for the next answer in a chat: of each message (role, tokens) the role's token, its own, the end."""
    tokens: list[int] = []
    for role, text in messages:
        tokens += [ROLES[role], *text, END]
    return [*tokens, ROLES["assistant"]]


def texts_of(tokenizer: Tokenizer) -> list[str]:
    """The text of each token; of special ones none."""
    size = tokenizer.get_vocab_size()
    return ["" if is_special(tokenizer, token) else tokenizer.decode([token]) for token in range(size)]


def is_special(tokenizer: Tokenizer, token: int) -> bool:
    """Whether a token stands for no text."""
    return str(tokenizer.id_to_token(token)).startswith("<|")


def forbidden_tokens(tokenizer: Tokenizer) -> NDArray[np.intp]:
    """Tokens that the model does not answer with: special ones but the end, and what is not printable ASCII."""
    texts = texts_of(tokenizer)
    never = [
        token
        for token, text in enumerate(texts)
        if token != END and not (text and text.isascii() and (text.isprintable() or text == "\n"))
    ]
    return np.array(never, np.intp)
