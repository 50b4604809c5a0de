"""A tokenizer as the engine uses one, around the library `tokenizers`; importing transformers takes five seconds.

Attributes and methods have the names that transformers gives them: whatever takes a tokenizer takes either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tokenizers import AddedToken, Tokenizer

_DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Ids of tokens with a part of their own; None: the model has none."""

    bos: int | None = None
    eos: int | None = None
    unk: int | None = None
    pad: int | None = None


class FastTokenizer:
    """Text to ids and back. Changes nothing after its making."""

    clean_up_tokenization_spaces = False

    def __init__(
        self,
        backend: Tokenizer,
        special: SpecialTokens,
        chat_template: str | Mapping[str, str] | None,
        name: str,
        texts: Mapping[int, str] = MappingProxyType({}),
        special_texts: Mapping[str, str] | None = None,
    ) -> None:
        """`name` is what it was made from. A template is a text, or several by name. `texts` are those of tokens that
        the library's decoder would write otherwise. `special_texts`: such as `eos_token`, which templates may ask for;
        None: those of `special`."""
        self.backend_tokenizer = backend
        self.chat_template = chat_template
        self.name_or_path = name
        self._texts = texts
        self.bos_token_id, self.eos_token_id = special.bos, special.eos
        self.unk_token_id, self.pad_token_id = special.unk, special.pad
        self.added_tokens_decoder: dict[int, AddedToken] = backend.get_added_tokens_decoder()
        self.special_tokens_map: Mapping[str, str | None] = special_texts or {
            f"{part}_token": backend.id_to_token(number)
            for part in ("bos", "eos", "unk", "pad")
            if (number := getattr(special, part)) is not None
        }

    def __len__(self) -> int:
        return self.backend_tokenizer.get_vocab_size()

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        """The ids of a text, as `input_ids`."""
        return {"input_ids": self.encode(text, add_special_tokens)}

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The ids of a text; with `add_special_tokens` as the model begins and ends any text."""
        return list(self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text of ids; those that the vocabulary does not know have none."""
        pieces, run = [], list[int]()
        for number in ids:
            own = self._texts.get(number)
            if own is None:
                run.append(number)
            elif own and not (skip_special_tokens and self._is_special(number)):
                pieces += [self.backend_tokenizer.decode(run, skip_special_tokens=skip_special_tokens), own]
                run = []
        return "".join([*pieces, self.backend_tokenizer.decode(run, skip_special_tokens=skip_special_tokens)])

    def _is_special(self, number: int) -> bool:
        added = self.added_tokens_decoder.get(number)
        return added is not None and added.special

    def convert_ids_to_tokens(self, number: int) -> str | None:
        """A token as the vocabulary writes it; None: there is no such token."""
        return self.backend_tokenizer.id_to_token(number)

    def get_chat_template(self) -> str:
        """The template for chats without tools. Raises ValueError where none of several is the default."""
        if isinstance(self.chat_template, str):
            return self.chat_template
        if not self.chat_template or _DEFAULT not in self.chat_template:
            raise ValueError("none of its templates is the default")
        return self.chat_template[_DEFAULT]
