"""A tokenizer that every client can load: byte-level BPE, trained on this project's own text, always the same way."""

from __future__ import annotations

import json
from pathlib import Path

VOCABULARY = 8000
_PROJECT = Path(__file__).parents[2]
_TEXTS = ("src/**/*.py", "tests/**/*.py", "docs/**/*.md")


def make(folder: Path) -> Path:
    """Write `tokenizer.json` and its configuration into `folder`, as a model's folder has them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=["<|end|>"],
        show_progress=False,
    )
    texts = sorted(str(path) for pattern in _TEXTS for path in _PROJECT.glob(pattern))
    tokenizer.train(texts, trainer)
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    configuration = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(configuration))
    return folder
