"""A tokenizer by its name on a hub, through huggingface_hub, whose cache and environment variables hold."""

from __future__ import annotations

from pathlib import Path

from windtunnel.errors import MissingExtra, TokenizerError
from windtunnel.workload.tokenizer.huggingface import CONVERT, FILES, HuggingFaceTokenizer, load_files

_LOCAL = (
    "Give --tokenizer a folder, a tokenizer.json or `server`, or leave tokens uncounted with --skip-tokenizer-init."
)


def load_from_hub(name: str) -> HuggingFaceTokenizer:
    """A tokenizer from a hub's repository, or from the cache.

    Raises TokenizerError when it can't be had, MissingExtra without huggingface_hub.
    """
    try:
        import huggingface_hub
    except ImportError as error:
        feature = f"a tokenizer by its hub name (no file or folder is called {name})"
        raise MissingExtra(feature, "huggingface-hub", "hub") from error
    from huggingface_hub.errors import EntryNotFoundError

    tokenizer, *others = FILES
    found: list[Path | None] = []
    try:
        required = Path(huggingface_hub.hf_hub_download(name, tokenizer))
        for file in others:
            try:
                found.append(Path(huggingface_hub.hf_hub_download(name, file)))
            except EntryNotFoundError:
                found.append(None)
    except Exception as error:  # the one seam for all that the library, its HTTP client and the disk raise
        raise _translated(name, error) from error
    return load_files(name, required, *found)


def _translated(name: str, error: Exception) -> TokenizerError:
    from huggingface_hub import constants, errors

    where = f"the hub {constants.ENDPOINT}"
    tried = "no file, folder or encoding here has this name, and "
    if isinstance(error, errors.HFValidationError):
        return TokenizerError(name, tried + "it can't be a hub's name either (those are OWNER/NAME)", _LOCAL)
    if isinstance(error, errors.GatedRepoError):
        return TokenizerError(name, f"{where} asks for consent to its terms first", "Accept them there; set HF_TOKEN.")
    if isinstance(error, errors.RepositoryNotFoundError):
        remedy = f"Check the name; set HF_TOKEN if it is private. {_LOCAL}"
        return TokenizerError(name, tried + f"{where} doesn't know it", remedy)
    if isinstance(error, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled):
        why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else f"{where} can't be reached"
        return TokenizerError(name, tried + f"it is not in the hub's cache, and {why}", _LOCAL)
    if isinstance(error, errors.EntryNotFoundError):
        return TokenizerError(name, f"{where} has it without a {FILES[0]}", CONVERT)
    return TokenizerError(name, f"{where} failed: {type(error).__name__}: {error}", f"Try again later. {_LOCAL}")
