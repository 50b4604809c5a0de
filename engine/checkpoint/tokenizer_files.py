"""The files that a tokenizer is made from, checked before the library opens them. Light: no torch.

The library opens whatever lies there under the names it knows, and trusts the values; a FIFO would block it for ever.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from engine.checkpoint.json_file import REFETCH, SETTINGS, TOKENIZER_SETTINGS, read_json_object
from engine.errors import CheckpointError
from offload.bounded_json import kind_of, shown
from offload.regular_file import TooLarge, read_whole, require_regular, why

TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")
"""A folder without any of them has no tokenizer."""
_ALWAYS_READ = (".jinja", ".model", ".tiktoken", ".bpe")
_READ_BY_NAME = (".json", ".txt")
_NAMES = ("tokenizer", "vocab", "merges", "added_tokens", "special_tokens_map", "chat_template")
"""Beginnings of the names of files that the library may open."""
_TEMPLATES = "additional_chat_templates"
_MAX_BYTES: Final = {"tokenizer.json": 128 << 20, ".jinja": 1 << 20, ".json": 48 << 20}
_MAX_OTHER_BYTES = 64 << 20
_VOCABULARIES: Final = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
_MAX_REASON_CHARACTERS = 300
_HINT: Final = "Fetch the tokenizer's files again."

_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
_KINDS: Final[dict[str, tuple[type, ...]]] = {
    **dict.fromkeys(_TOKENS, (str, dict)),
    "tokenizer_class": (str,),
    "chat_template": (str, list, dict),
    "model_max_length": (int, float),
    "added_tokens_decoder": (dict,),
    "additional_special_tokens": (list,),
    "extra_special_tokens": (dict, list),
    "add_bos_token": (bool,),
    "add_eos_token": (bool,),
    "add_prefix_space": (bool,),
    "clean_up_tokenization_spaces": (bool,),
    "split_special_tokens": (bool,),
    "padding_side": (str,),
    "truncation_side": (str,),
    "auto_map": (dict,),
    "processor_class": (str,),
}
"""What a value must be; null is always allowed, and keys that are not named here are left as they are."""
_MAX_TOKEN_CHARACTERS = 1000
_MAX_TEMPLATE_CHARACTERS = 1 << 20


def has_tokenizer(folder: Path) -> bool:
    """Whether there is any file of a tokenizer. Raises nothing."""
    return any((folder / name).exists() for name in TOKENIZER_FILES)


def has_vocabulary(folder: Path) -> bool:
    """Whether there is a file that holds a tokenizer's vocabulary. Raises nothing."""
    return any((folder / name).exists() for name in _VOCABULARIES)


def check_tokenizer_files(folder: Path, needs_tokenizer: bool = True) -> None:
    """Raises CheckpointError, which names file and key, for what is no regular file, too large or of a wrong type."""
    if needs_tokenizer and not has_tokenizer(folder):
        raise CheckpointError(f"{folder} holds no tokenizer: none of {', '.join(TOKENIZER_FILES)}.", _HINT)
    for path in sorted((*_files_in(folder), *_files_in(folder / _TEMPLATES))):
        if path.suffix in _ALWAYS_READ or (path.suffix in _READ_BY_NAME and path.name.startswith(_NAMES)):
            _check_size(path)
        if path.suffix == ".jinja":
            _check_text(path)
    settings = _read(folder / "tokenizer_config.json")
    special = _read(folder / "special_tokens_map.json")
    for name, values in (("tokenizer_config.json", settings), ("special_tokens_map.json", special)):
        if problem := _problem(values):
            raise CheckpointError(f"{folder / name}: {problem}.", _HINT)
    if problem := _problem_of_added_tokens(settings.get("added_tokens_decoder") or {}):
        raise CheckpointError(f"{folder / 'tokenizer_config.json'}: added_tokens_decoder {problem}.", _HINT)


def read_settings(folder: Path) -> dict[str, Any]:
    """The content of `tokenizer_config.json`, with the special tokens of a file of their own where it lists none;
    `check_tokenizer_files` has passed both."""
    settings = _read(folder / "tokenizer_config.json")
    if "added_tokens_decoder" not in settings:
        special = _read(folder / "special_tokens_map.json")
        settings |= {
            key: {**token, "special": True} if isinstance(token, dict) else token for key, token in special.items()
        }
    return settings


def tokenizer_error(folder: Path, error: Exception) -> CheckpointError:
    """The error for whatever the library raises on files that `check_tokenizer_files` has passed.

    Those with settings have been checked, so that it is the vocabulary that is damaged.
    """
    name = next((name for name in _VOCABULARIES if (folder / name).exists()), TOKENIZER_FILES[0])
    text = " ".join(str(error).split()) or type(error).__name__
    reason = text if len(text) <= _MAX_REASON_CHARACTERS else f"{text[:_MAX_REASON_CHARACTERS]}..."
    return CheckpointError(f"The tokenizer's {folder / name} cannot be used: {reason}", _HINT)


def _files_in(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _check_size(path: Path) -> None:
    try:
        size = require_regular(path).st_size
        limit = _MAX_BYTES.get(path.name) or _MAX_BYTES.get(path.suffix, _MAX_OTHER_BYTES)
        if size > limit:
            raise TooLarge(size, limit)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {why(error)}.", REFETCH) from error


def _check_text(path: Path) -> None:
    try:
        read_whole(path, _MAX_BYTES[".jinja"]).decode()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {why(error)}.", REFETCH) from error
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} cannot be read: byte {error.start} is not UTF-8 text.", REFETCH) from error


def _read(path: Path) -> dict[str, Any]:
    """The content of a file that need not be there."""
    if not os.path.lexists(path):
        return {}
    return read_json_object(path, TOKENIZER_SETTINGS if path.name == "tokenizer_config.json" else SETTINGS)


def _problem(values: Mapping[str, Any]) -> str:
    for key, value in values.items():
        kinds = _KINDS.get(key)
        if kinds is None or value is None:
            continue
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            wanted = " or ".join(dict.fromkeys(kind_of(kind()) for kind in kinds))
            return f"{key} is {shown(value)}, where {wanted} belongs"
        if key in _TOKENS and (problem := _problem_of_token(value)):
            return f"{key} {problem}"
    return _problem_of_template(values.get("chat_template"))


def _problem_of_token(value: object) -> str:
    """A special token is text, or an object that describes it."""
    text = value.get("content") if isinstance(value, dict) else value
    if not isinstance(text, str):
        return f"is {shown(value)}, which holds no text as its content"
    if len(text) > _MAX_TOKEN_CHARACTERS:
        return f"is {shown(text)}, which is longer than {_MAX_TOKEN_CHARACTERS} characters"
    return ""


def _problem_of_template(template: object) -> str:
    """A template is text, or a list of named ones."""
    if isinstance(template, str) and len(template) > _MAX_TEMPLATE_CHARACTERS:
        return f"chat_template has {len(template)} characters, where at most {_MAX_TEMPLATE_CHARACTERS} are read"
    if isinstance(template, list):
        for entry in template:
            parts = (entry.get("name"), entry.get("template")) if isinstance(entry, dict) else (None,)
            if not all(isinstance(part, str) for part in parts):
                return "chat_template is a list, and not of objects with a name and a template"
    if isinstance(template, dict) and not all(isinstance(value, str) for value in template.values()):
        return "chat_template is an object, and not of texts"
    return ""


def _problem_of_added_tokens(added: Mapping[str, Any]) -> str:
    for number, token in added.items():
        if not number.isdecimal() or len(number) > 9:
            return f"has the key {shown(number)}, which is no token's number"
        if not isinstance(token, dict) or _problem_of_token(token):
            return f"describes {number} as {shown(token)}"
        for key in ("lstrip", "rstrip", "single_word", "normalized", "special"):
            if not isinstance(token.get(key, False), bool):
                return f"gives {number} a {key} of {shown(token[key])}, where true or false belongs"
    return ""
