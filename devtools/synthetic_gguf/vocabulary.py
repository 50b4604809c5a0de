"""A byte-level BPE tokenizer of a model folder, as GGUF keys."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf import GGUFWriter, TokenType


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What `tokenizer.json` and the files beside it say."""

    tokens: list[str]
    merges: list[str]
    specials: frozenset[int]
    named: dict[str, int]
    """Ids of bos, eos, pad and unk, where the folder names them."""
    chat_template: str

    def add_to(self, writer: GGUFWriter) -> None:
        """Writes every key; the splitting rule is SmolLM's, each digit apart."""
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("smollm")
        writer.add_token_list(self.tokens)
        kinds = [TokenType.CONTROL if n in self.specials else TokenType.NORMAL for n in range(len(self.tokens))]
        writer.add_token_types(kinds)
        writer.add_token_merges(self.merges)
        writer.add_add_bos_token(False)
        writer.add_add_space_prefix(False)
        writer.add_chat_template(self.chat_template)
        for name, add in {
            "bos": writer.add_bos_token_id,
            "eos": writer.add_eos_token_id,
            "pad": writer.add_pad_token_id,
            "unk": writer.add_unk_token_id,
        }.items():
            if name in self.named:
                add(self.named[name])


def read_vocabulary(folder: Path) -> Vocabulary:
    """Raises SystemExit where the folder has no byte-level BPE tokenizer with SmolLM's splitting rule."""
    stored = json.loads((folder / "tokenizer.json").read_text())
    split = (stored.get("pre_tokenizer") or {}).get("pretokenizers", [])
    if stored["model"]["type"] != "BPE" or [rule["type"] for rule in split] != ["Digits", "ByteLevel"]:
        raise SystemExit(f"{folder}: only a tokenizer like the demo's can be written. Build the demo: make demo.")
    ids: dict[str, int] = dict(stored["model"]["vocab"])
    ids |= {added["content"]: added["id"] for added in stored["added_tokens"]}
    tokens = sorted(ids, key=lambda token: ids[token])
    assert [ids[token] for token in tokens] == list(range(len(tokens))), "token ids have gaps"
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    return Vocabulary(
        tokens,
        [merge if isinstance(merge, str) else " ".join(merge) for merge in stored["model"]["merges"]],
        frozenset(added["id"] for added in stored["added_tokens"] if added["special"]),
        _named_ids(settings, ids),
        (folder / "chat_template.jinja").read_text(),
    )


def _named_ids(settings: dict[str, Any], ids: dict[str, int]) -> dict[str, int]:
    contents = {name: settings.get(f"{name}_token") for name in ("bos", "eos", "pad", "unk")}
    return {name: ids[token] for name, token in contents.items() if isinstance(token, str) and token in ids}
