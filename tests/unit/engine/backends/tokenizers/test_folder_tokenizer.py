"""A folder's tokenizer made without the model library: the library's ids, texts, special tokens and templates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from engine.api import Message
from engine.backends.tokenizers.folder_tokenizer import fast_tokenizer_of
from engine.backends.tokenizers.splitters import QWEN2_PATTERN
from engine.backends.transformers.config_and_tokenizer import load_tokenizer
from engine.chat.conversation import ConversationEncoder
from engine.errors import CheckpointError
from tests.gguf_files import CHATML
from tests.tokenizer_texts import tokenizer_texts

MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
SPECIAL = {"bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
UNKNOWN = {"__type": "AddedToken", "content": "<unk>", "lstrip": True, "special": True}
PLAIN: Mapping[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": CHATML, **SPECIAL}


def qwen2_pieces() -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(QWEN2_PATTERN), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def write(folder: Path, settings: Mapping[str, Any], model_type: str = "qwen3_moe", pieces: Any = None) -> Path:
    """A byte-level BPE tokenizer with a few merges, and what a folder says of it."""
    backend = Tokenizer(models.BPE())
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pieces or qwen2_pieces()
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator(tokenizer_texts(100, 1), trainer)
    backend.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in MARKS])
    backend.enable_truncation(8)
    backend.enable_padding(length=4)
    folder.mkdir(exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return folder


def added(first: int, *texts: str, **flags: bool) -> dict[str, Any]:
    return {str(first + i): {"content": text, "special": False, **flags} for i, text in enumerate(texts)}


def num_tok(folder: Path) -> int:
    return Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(PLAIN, id="plain"),
        pytest.param({**PLAIN, "tokenizer_class": "Qwen2Tokenizer", "add_bos_token": False}, id="qwen2"),
        pytest.param({"tokenizer_class": "Qwen2TokenizerFast", "chat_template": CHATML}, id="qwen2 by default"),
        pytest.param({**PLAIN, "sep_token": "<sep>", "unk_token": UNKNOWN}, id="named"),
        pytest.param({**PLAIN, "additional_special_tokens": ["<|user|>", "<|im_end|>"]}, id="listed"),
        pytest.param({**PLAIN, "added_tokens_decoder": ("<think>", "</think>", "C++")}, id="added"),
    ],
)
def test_ids_texts_and_templates_are_the_library_s(tmp_path: Path, settings: dict[str, Any]) -> None:
    folder = write(tmp_path / "m", settings)
    if "added_tokens_decoder" in settings:
        texts = settings["added_tokens_decoder"]
        declared = added(num_tok(folder), *texts, rstrip=True)
        (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "added_tokens_decoder": declared}))
    ours, theirs = fast_tokenizer_of(folder), load_tokenizer(folder)
    assert ours is not None
    assert len(ours) == len(theirs)
    controls = (*MARKS, "<think>", "</think> ", " C++", "<sep>", "<|user|>", "  <unk> ")
    for text in tokenizer_texts(400, 5, controls):
        for adds in (False, True):
            ids = theirs(text, add_special_tokens=adds)["input_ids"]
            assert ours.encode(text, add_special_tokens=adds) == ids, text
        for skips in (False, True):
            assert ours.decode(ids, skip_special_tokens=skips) == theirs.decode(ids, skip_special_tokens=skips)
    assert ours.special_tokens_map == theirs.special_tokens_map
    for name in ("bos", "eos", "unk", "pad"):
        assert getattr(ours, f"{name}_token_id") == getattr(theirs, f"{name}_token_id"), name
    assert {n: repr(t) for n, t in ours.added_tokens_decoder.items()} == {
        n: repr(t) for n, t in theirs.added_tokens_decoder.items()
    }
    chat = (Message("system", "Be kind."), Message("user", "Where is <|im_end|> the sea?"))
    encoded = [ConversationEncoder(each, lambda: False).encode(chat) for each in (ours, theirs)]
    assert encoded[0] == encoded[1]


def test_a_template_of_its_own_file(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", PLAIN)
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    ours = fast_tokenizer_of(folder)
    assert ours is not None
    assert ours.get_chat_template() == load_tokenizer(folder).get_chat_template()


def test_what_the_library_makes_anew_is_left_to_it(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", {**PLAIN, "tokenizer_class": "LlamaTokenizerFast"})
    assert fast_tokenizer_of(folder) is None
    qwen2 = {**PLAIN, "tokenizer_class": "Qwen2Tokenizer"}
    assert fast_tokenizer_of(write(folder, qwen2, pieces=pre_tokenizers.ByteLevel())) is None
    assert fast_tokenizer_of(write(folder, {**PLAIN, "split_special_tokens": True})) is None
    assert fast_tokenizer_of(write(folder, {**PLAIN, "image_token": "<image>"})) is None
    assert fast_tokenizer_of(write(folder, PLAIN, "qwen3_5_moe")) is None
    wrong_id = {**PLAIN, "added_tokens_decoder": added(2000, "<far>")}
    assert fast_tokenizer_of(write(folder, wrong_id)) is None


def test_a_damaged_file(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", PLAIN)
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json cannot be used"):
        fast_tokenizer_of(folder)
