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
        from huggingface_hub.errors import EntryNotFoundError
    except ImportError as error:
        feature = f"a tokenizer by its hub name (no file or folder is called {name})"
        raise MissingExtra(feature, "huggingface-hub", "hub") from error
    tokenizer, *others = FILES
    found: list[Path | None] = []
    try:
        required = _fetch(name, tokenizer)
        for file in others:
            try:
                found.append(_fetch(name, file))
            except EntryNotFoundError:
                found.append(None)
    except Exception as error:  # the one seam for all that the library, its HTTP client and the disk raise
        raise _translated(name, error) from error
    return load_files(name, required, *found)


def _fetch(name: str, file: str) -> Path:
    """One file of a repository; from the cache where the hub does not give it.

    Raises EntryNotFoundError where neither has it; its cause, if any, is why the hub could not be asked.
    The hub is asked once before: a download tries for 20 s and more before it gives up on a hub that is not there.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        get_hf_file_metadata(hf_hub_url(name, file))
    except EntryNotFoundError:
        raise
    except Exception as error:  # whatever it is, the cache may do
        try:
            return Path(hf_hub_download(name, file, local_files_only=True))
        except LocalEntryNotFoundError as not_cached:
            raise not_cached from error
    return Path(hf_hub_download(name, file))


def _translated(name: str, error: Exception) -> TokenizerError:
    from huggingface_hub import constants, errors

    where = f"the hub {constants.ENDPOINT}"
    tried = "no file, folder or encoding here has this name, and "
    if isinstance(error, errors.LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    if isinstance(error, errors.HFValidationError):
        return TokenizerError(name, tried + "it can't be a hub's name either (those are OWNER/NAME)", _LOCAL)
    if isinstance(error, errors.GatedRepoError):
        return TokenizerError(name, f"{where} asks for consent to its terms first", "Accept them there; set HF_TOKEN.")
    if isinstance(error, errors.RepositoryNotFoundError):
        remedy = f"Check the name; set HF_TOKEN if it is private. {_LOCAL}"
        return TokenizerError(name, tried + f"{where} doesn't know it", remedy)
    if isinstance(error, errors.EntryNotFoundError):
        return TokenizerError(name, f"{where} has it without a {FILES[0]}", CONVERT)
    if isinstance(error, errors.OfflineModeIsEnabled):
        why = "HF_HUB_OFFLINE is set"
    elif isinstance(error, errors.HfHubHTTPError):
        why = f"{where} answered HTTP {error.response.status_code}"
    else:
        why = f"{where} can't be reached ({type(error).__name__}: {error})"
    return TokenizerError(name, tried + f"it is not in the hub's cache, and {why}", _LOCAL)
