"""Tokenizers from the disk: folders, tokenizer.json, .tiktoken files and tiktoken's cache."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workload.trained import KINDS, text, trained, write_folder
from windtunnel.errors import MissingExtra, TokenizerError
from windtunnel.workload.tokenizer.load import load_tokenizer

MESSAGES = [{"role": "user", "content": "hi"}]


def ranks_file(path: Path, merged: tuple[bytes, ...] = (b" a", b"th", b" th", b" the")) -> Path:
    tokens = [*(bytes([b]) for b in range(256)), *merged]
    path.write_bytes(b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(tokens)))
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_batches_and_counts_agree_with_single_texts(kind: str) -> None:
    tokenizer = trained(kind)
    lines = text()[:20]
    for special in (False, True):
        batch = tokenizer.encode_batch(lines, special)
        assert batch == [tokenizer.encode(line, special) for line in lines]
        assert [len(ids) for ids in batch] == [tokenizer.count(line, special) for line in lines]
    assert tokenizer.num_special == tokenizer.count(lines[0], True) - tokenizer.count(lines[0])
    assert tokenizer.decode_batch(batch) == [tokenizer.decode(ids) for ids in batch]


def test_truncation_and_padding_of_the_file_are_not_applied() -> None:
    assert trained("wordpiece").count("lan " * 200) == 200
    assert trained("wordpiece").count("lan") == 1


def test_special_tokens_are_known_by_their_ids() -> None:
    tokenizer = trained("wordpiece")
    assert sorted(tokenizer.decode([i]) for i in tokenizer.special_ids) == ["[CLS]", "[SEP]", "[UNK]"]


@pytest.mark.parametrize("name", ["", "tokenizer.json"])
def test_a_folder_and_its_tokenizer_json_are_the_same_tokenizer(tmp_path: Path, name: str) -> None:
    write_folder(tmp_path, "gpt2", {"bos_token": {"content": "<b>"}, "eos_token": None}, "{{ bos_token }}")
    tokenizer = load_tokenizer(str(tmp_path / name))
    assert tokenizer.encode(text()[0]) == trained("gpt2").encode(text()[0])
    assert tokenizer.apply_chat_template(MESSAGES) == "<b>"


def test_a_tokenizer_json_of_another_name_is_loaded(tmp_path: Path) -> None:
    write_folder(tmp_path, "gpt2").joinpath("tokenizer.json").rename(tmp_path / "mine.json")
    assert load_tokenizer(str(tmp_path / "mine.json")).count("lan ton") == 2


def test_a_template_of_its_own_file_goes_before_the_configurations(tmp_path: Path) -> None:
    write_folder(tmp_path, "gpt2", {"chat_template": "old"}, "new")
    assert load_tokenizer(str(tmp_path)).apply_chat_template(MESSAGES) == "new"


def test_of_several_named_templates_the_default_is_taken(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    write_folder(tmp_path, "gpt2", {"chat_template": named})
    assert load_tokenizer(str(tmp_path)).apply_chat_template(MESSAGES) == "plain"


def test_a_tokenizer_without_a_template_says_how_to_do_without(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="no chat template") as caught:
        load_tokenizer(str(write_folder(tmp_path, "gpt2"))).apply_chat_template(MESSAGES)
    assert "--skip-chat-template" in caught.value.advice


def test_the_built_in_tokenizer_counts_words() -> None:
    tokenizer = load_tokenizer("windtunnel-words")
    assert (tokenizer.name, tokenizer.num_special) == ("windtunnel-words", 0)
    assert tokenizer.count("one two  three") == 3
    ids = tokenizer.encode("baba zozo")
    assert tokenizer.decode(ids) == "baba zozo"
    assert tokenizer.decode_batch([ids, ids[:1]]) == ["baba zozo", "baba"]
    assert tokenizer.encode_batch(["baba", "zozo"]) == [ids[:1], ids[1:]]


def test_a_folder_without_a_tokenizer_json_is_told_with_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").touch()
    (tmp_path / "config.json").touch()
    with pytest.raises(
        TokenizerError, match=r"has no tokenizer\.json; it has config\.json, tokenizer\.model"
    ) as caught:
        load_tokenizer(str(tmp_path))
    assert "a SentencePiece model" in caught.value.message
    assert "save_pretrained" in caught.value.advice


def test_an_empty_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="it is empty"):
        load_tokenizer(str(tmp_path))


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("tokenizer.json", "{", "can't be loaded"),
        ("tokenizer.json", '{"version": "1.0"}', "can't be loaded"),
        ("weights.safetensors", "", "no tokenizer that is known"),
        ("ranks.tiktoken", "IQ== 0\nnot base64\n", "line 2"),
        ("ranks.tiktoken", "IQ== 0\n", "no token for 255 of the 256 bytes"),
    ],
)
def test_a_broken_file_is_named_with_what_is_wrong(tmp_path: Path, file: str, content: str, says: str) -> None:
    (tmp_path / file).write_text(content)
    with pytest.raises(TokenizerError, match=says) as caught:
        load_tokenizer(str(tmp_path / file))
    assert file in caught.value.message
    assert caught.value.advice


def test_a_broken_configuration_is_named(tmp_path: Path) -> None:
    write_folder(tmp_path, "gpt2")
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": 3}')
    with pytest.raises(TokenizerError, match=r"tokenizer_config\.json is broken"):
        load_tokenizer(str(tmp_path))


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder", "gone.json", "a/b/c"])
def test_a_path_that_is_not_there_is_not_taken_for_a_hub_name(name: str) -> None:
    with pytest.raises(TokenizerError, match="no such file or folder"):
        load_tokenizer(name)


def test_a_mode_that_is_not_there_is_refused() -> None:
    with pytest.raises(TokenizerError, match="mistral") as caught:
        load_tokenizer("windtunnel-words", mode="mistral")
    assert "--tokenizer server" in caught.value.advice


def test_the_server_needs_a_way_to_it() -> None:
    with pytest.raises(TokenizerError, match="no server"):
        load_tokenizer("server")


@pytest.mark.parametrize("as_folder", [False, True])
def test_a_tiktoken_file_is_loaded(tmp_path: Path, as_folder: bool) -> None:
    path = ranks_file(tmp_path / "mine.tiktoken")
    tokenizer = load_tokenizer(str(tmp_path if as_folder else path))
    assert tokenizer.encode("the the a") == [257, ord("e"), 259, 256]
    assert tokenizer.encode_batch(["the", " a"], True) == [[257, ord("e")], [256]]
    assert tokenizer.decode([259, 256]) == " the a"
    assert tokenizer.decode_batch([[259], [256]]) == [" the", " a"]
    assert (tokenizer.vocab_size, tokenizer.num_special, tokenizer.special_ids) == (260, 0, frozenset())
    with pytest.raises(TokenizerError, match="no chat template"):
        tokenizer.apply_chat_template(MESSAGES)


@pytest.mark.parametrize(("name", "together"), [("mine", 3), ("cl100k_base", 3), ("r50k_base", 1)])
def test_the_pattern_is_that_of_the_encoding_of_the_files_name(tmp_path: Path, name: str, together: int) -> None:
    # cl100k takes three digits at a time, and r50k all of them
    tokenizer = load_tokenizer(str(ranks_file(tmp_path / f"{name}.tiktoken", (b"12", b"34", b"1234"))))
    assert tokenizer.count("1234") == together


def test_a_whole_file_by_an_encodings_name_has_its_special_tokens(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(ranks_file(tmp_path / "cl100k_base.tiktoken")))
    assert 100257 in tokenizer.special_ids
    assert tokenizer.vocab_size == 100257


CACHED = """
import json, sys

def no_network(event, args):
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise SystemExit(f"{event}: {args}")

sys.addaudithook(no_network)
from windtunnel.errors import TokenizerError
from windtunnel.workload.tokenizer.load import load_tokenizer

outcome = {"ids": load_tokenizer("our_base").encode(" the a")}
try:
    load_tokenizer("o200k_base")
except TokenizerError as error:
    outcome |= {"says": error.message, "advice": error.advice}
print(json.dumps(outcome))
"""


def test_an_encoding_comes_from_tiktokens_cache_and_never_from_the_network(tmp_path: Path) -> None:
    address = "https://nowhere.invalid/our_base.tiktoken"
    cache = tmp_path / "cache"
    cache.mkdir()
    ranks_file(cache / hashlib.sha1(address.encode()).hexdigest())
    plugin = tmp_path / "tiktoken_ext"
    plugin.mkdir()
    (plugin / "ours.py").write_text(
        "from tiktoken.load import load_tiktoken_bpe\n"
        "def our_base():\n"
        f"    ranks = load_tiktoken_bpe({address!r})\n"
        "    return dict(name='our_base', pat_str=r' ?\\w+', mergeable_ranks=ranks, special_tokens={})\n"
        "ENCODING_CONSTRUCTORS = {'our_base': our_base}\n"
    )
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
        "TIKTOKEN_CACHE_DIR": str(cache),
    }
    done = subprocess.run([sys.executable, "-c", CACHED], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["ids"] == [259, 256]
    assert "doesn't have o200k_base.tiktoken in its cache" in outcome["says"]
    assert "TIKTOKEN_CACHE_DIR" in outcome["advice"]


@pytest.mark.parametrize(("name", "package"), [("x.tiktoken", "tiktoken"), ("maker/model", "huggingface_hub")])
def test_a_library_that_is_not_installed_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    ranks_file(tmp_path / "x.tiktoken")
    monkeypatch.chdir(tmp_path)
    for module in [m for m in sys.modules if m.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)  # as Python itself marks what can't be imported
    with pytest.raises(MissingExtra, match=package.replace("_", "-")) as caught:
        load_tokenizer(name)
    assert caught.value.advice == "From a checkout of windtunnel: pip install '.[hub]'"
