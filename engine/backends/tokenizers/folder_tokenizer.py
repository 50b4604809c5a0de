"""The tokenizer of a checkpoint folder, made from its `tokenizer.json` without the model library.

The library makes some kinds of tokenizers anew, from the vocabulary alone, and gives them rules of its own. So only
kinds are made here that it takes as the file has them; for any other it has to be asked.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tokenizers import AddedToken, Tokenizer

from engine.backends.tokenizers.fast_tokenizer import FastTokenizer, SpecialTokens
from engine.backends.tokenizers.splitters import QWEN2_PATTERN
from engine.checkpoint.config_file import read_config_file
from engine.checkpoint.tokenizer_files import check_tokenizer_files, has_tokenizer, read_settings, tokenizer_error
from offload.regular_file import read_whole

_PLAIN_CLASSES: Final = ("PreTrainedTokenizer", "TokenizersBackend")
_QWEN2_CLASS: Final = "Qwen2Tokenizer"
_QWEN2_TOKEN: Final = "<|endoftext|>"
_OTHER_RULES: Final = ("mistral", "mixtral", "ministral", "pixtral", "voxtral", "qwen3_5")
"""How model types begin for which the library takes another kind of tokenizer than the folder names."""
_NAMED: Final = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
_TEMPLATE_FILE: Final = "chat_template.jinja"
_MAX_TEMPLATE_BYTES = 1 << 20
_ASK_LIBRARY: Final = ("split_special_tokens", "clean_up_tokenization_spaces", "auto_map")
"""Settings under which the library does something else than the file says."""


def fast_tokenizer_of(folder: Path) -> FastTokenizer | None:
    """Ids and texts are those of the library's own tokenizer. None: the library has to be asked. Raises
    CheckpointError."""
    check_tokenizer_files(folder)
    settings = read_settings(folder)
    if not _is_plain(folder, settings):
        return None
    try:
        backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # the library raises its own kind for whatever is wrong in the file
        raise tokenizer_error(folder, error) from error
    backend.no_truncation()
    backend.no_padding()
    if settings["tokenizer_class"].removesuffix("Fast") == _QWEN2_CLASS:
        if not _splits_as_qwen2(backend):
            return None
        settings = {"eos_token": _QWEN2_TOKEN, "pad_token": _QWEN2_TOKEN, "unk_token": _QWEN2_TOKEN, **settings}
    if not _add_tokens(backend, settings):
        return None
    named = {f"{part}_token": text for part in _NAMED if (text := _text(settings.get(f"{part}_token")))}
    ids = {name.removesuffix("_token"): backend.token_to_id(text) for name, text in named.items()}
    special = SpecialTokens(**{part: ids.get(part) for part in ("bos", "eos", "unk", "pad")})
    return FastTokenizer(backend, special, _template(folder, settings), str(folder), special_texts=named)


def _is_plain(folder: Path, settings: Mapping[str, Any]) -> bool:
    """Whether the library would take `tokenizer.json` as it is."""
    kind = str(settings.get("tokenizer_class") or "").removesuffix("Fast")
    model_type = str(read_config_file(folder)["model_type"]) if (folder / "config.json").exists() else ""
    extra = settings.get("extra_special_tokens") or settings.get("additional_special_tokens") or []
    other_names = [key for key in settings if key.endswith("_token") and key.removesuffix("_token") not in _NAMED]
    return (
        kind in (*_PLAIN_CLASSES, _QWEN2_CLASS)
        and (folder / "tokenizer.json").is_file()
        and not model_type.startswith(_OTHER_RULES)
        and not any(settings.get(key) for key in _ASK_LIBRARY)
        and isinstance(extra, list)
        and not set(other_names) - {"add_bos_token", "add_eos_token"}
        and not any((folder / name).exists() for name in ("added_tokens.json", "additional_chat_templates"))
    )


def _splits_as_qwen2(backend: Tokenizer) -> bool:
    """Whether the file says what the library makes of this kind, whatever the file says."""
    said = json.loads(backend.to_str())
    splits = (said["pre_tokenizer"] or {}).get("pretokenizers") or [{}]
    return (
        (said["normalizer"] or {}).get("type") == "NFC"
        and splits[0].get("pattern") == {"Regex": QWEN2_PATTERN}
        and [each.get("type") for each in splits] == ["Split", "ByteLevel"]
        and not (splits[1]["add_prefix_space"] or splits[1]["use_regex"])
        and (said["decoder"] or {}).get("type") == "ByteLevel"
        and not (said["model"].get("ignore_merges") or said["model"].get("byte_fallback"))
    )


def _add_tokens(backend: Tokenizer, settings: Mapping[str, Any]) -> bool:
    """Adds what the settings name beside the file, as the library does. False: a token has another id than they say."""
    declared = {int(number): _added(token) for number, token in (settings.get("added_tokens_decoder") or {}).items()}
    backend.add_tokens([declared[number] for number in sorted(declared)])
    if any(backend.token_to_id(token.content) != number for number, token in declared.items()):
        return False
    extra = settings.get("extra_special_tokens") or settings.get("additional_special_tokens") or []
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    named = [settings[f"{part}_token"] for part in _NAMED if settings.get(f"{part}_token")]
    backend.add_tokens(_special(token for token in (*named, *extra) if _text(token) not in known))
    return True


def _special(tokens: Iterable[Any]) -> list[AddedToken]:
    return [AddedToken(token, special=True) if isinstance(token, str) else _added(token) for token in tokens]


def _added(token: Mapping[str, Any]) -> AddedToken:
    flags = {key: bool(token[key]) for key in ("lstrip", "rstrip", "single_word", "normalized") if key in token}
    return AddedToken(token["content"], special=bool(token.get("special", False)), **flags)


def _text(token: Any) -> str:
    """Of a special token, which is text or an object that describes it."""
    return str(token.get("content", "")) if isinstance(token, dict) else str(token or "")


def template_of_folder(folder: Path) -> str | dict[str, str] | None:
    """The chat template of a folder that need not hold a tokenizer. Raises CheckpointError."""
    if not has_tokenizer(folder) and not os.path.lexists(folder / _TEMPLATE_FILE):
        return None
    check_tokenizer_files(folder, needs_tokenizer=False)
    return _template(folder, read_settings(folder))


def _template(folder: Path, settings: Mapping[str, Any]) -> str | dict[str, str] | None:
    """Of a file of its own, else of the settings."""
    path = folder / _TEMPLATE_FILE
    if os.path.lexists(path):
        return read_whole(path, _MAX_TEMPLATE_BYTES).decode()
    found = settings.get("chat_template")
    if isinstance(found, list):
        return {entry["name"]: entry["template"] for entry in found}
    return found
