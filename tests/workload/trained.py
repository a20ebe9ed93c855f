"""Small tokenizers of every kind, trained on made-up text."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path

from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from windtunnel.workload.tokenizer.huggingface import HuggingFaceTokenizer, load_files

LLAMA_3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@cache
def text() -> list[str]:
    """Lines of made-up words whose frequencies fall as those of a language do."""
    rng = random.Random(7)
    onsets, ends = ["", *"bdfgklmnprst", "st", "tr"], ["", "n", "r", "s", "t"]
    syllables = [onset + vowel + end for onset in onsets for vowel in "aeiou" for end in ends]
    words = ["".join(rng.choices(syllables, k=rng.choice((1, 2, 2, 3)))) for _ in range(1200)]
    words += [word.capitalize() for word in words[:200]] + [str(n) for n in range(100)]
    weights = [1 / (rank + 3) for rank in range(len(words))]
    marks = [".", ",", "!", "?", ";", "", "", "", ""]
    return [
        " ".join(word + rng.choice(marks) for word in rng.choices(words, weights, k=rng.randint(5, 25)))
        for _ in range(1500)
    ]


def _begin(core: Tokenizer, token: str) -> None:
    core.add_special_tokens([token])
    core.post_processor = processors.TemplateProcessing(
        single=f"{token} $A", special_tokens=[(token, core.token_to_id(token))]
    )


def gpt2() -> Tokenizer:
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1500, special_tokens=["<|end|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    core.train_from_iterator(text(), trainer)
    return core


def llama3() -> Tokenizer:
    core = Tokenizer(models.BPE(ignore_merges=True))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA_3_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=1500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    core.train_from_iterator(text(), trainer)
    _begin(core, "<|begin|>")
    return core


def metaspace() -> Tokenizer:
    """A SentencePiece model as it is converted today, with a begin token."""
    core = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    core.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")])
    core.train_from_iterator(text(), trainers.BpeTrainer(vocab_size=1200, special_tokens=["<unk>"]))
    _begin(core, "<s>")
    return core


def llama2() -> Tokenizer:
    """A SentencePiece model as it was converted before: spaces are replaced, and nothing is split."""
    core = metaspace()
    core.pre_tokenizer = None
    core.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    core.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return core


def unigram() -> Tokenizer:
    core = Tokenizer(models.Unigram())
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    core.decoder = decoders.Metaspace()
    core.train_from_iterator(
        text(), trainers.UnigramTrainer(vocab_size=900, special_tokens=["<unk>"], unk_token="<unk>")
    )
    return core


def wordpiece() -> Tokenizer:
    core = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer()
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=1200, special_tokens=["[UNK]", "[CLS]", "[SEP]"])
    core.train_from_iterator(text(), trainer)
    core.post_processor = processors.BertProcessing(
        ("[SEP]", core.token_to_id("[SEP]")), ("[CLS]", core.token_to_id("[CLS]"))
    )
    core.enable_truncation(64)
    core.enable_padding(length=64)
    return core


def across_words() -> Tokenizer:
    """Tokens reach across spaces: many words merge with their neighbours."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=2500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    core.train_from_iterator([line[:60] for line in text()], trainer)
    return core


def few_merges() -> Tokenizer:
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=270, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    core.train_from_iterator(text(), trainer)
    return core


def bare_bytes() -> Tokenizer:
    """256 tokens, a byte each."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return core


def five_words() -> Tokenizer:
    core = Tokenizer(models.WordLevel({"[UNK]": 0, "red": 1, "green": 2, "blue": 3, "grey": 4, "pink": 5}, "[UNK]"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.add_special_tokens(["[UNK]"])
    return core


KINDS = {
    kind.__name__: kind
    for kind in (
        gpt2,
        llama3,
        metaspace,
        llama2,
        unigram,
        wordpiece,
        across_words,
        few_merges,
        bare_bytes,
        five_words,
    )
}


@cache
def tokenizer_json(kind: str) -> str:
    return KINDS[kind]().to_str()


@cache
def trained(kind: str) -> HuggingFaceTokenizer:
    """The tokenizer, as windtunnel loads it from its file."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_text(tokenizer_json(kind), encoding="utf-8")
        return load_files(kind, path)


def write_folder(folder: Path, kind: str, config: dict[str, object] | None = None, template: str | None = None) -> Path:
    """A model's folder with a tokenizer."""
    (folder / "tokenizer.json").write_text(tokenizer_json(kind), encoding="utf-8")
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder
