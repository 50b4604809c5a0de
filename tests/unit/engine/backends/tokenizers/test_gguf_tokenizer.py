"""Tokenizers out of GGUF files: llama.cpp's ids, what the engine asks of a tokenizer, and refusals."""

from __future__ import annotations

import random
import struct
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import pytest
import regex

from engine.api import Message
from engine.backends.tokenizers.gguf_tokenizer import UNUSED, USER_DEFINED, GgufTokenizer, read_tokenizer
from engine.backends.tokenizers.splitters import SPLITTERS
from engine.chat.conversation import ConversationEncoder
from engine.chat.end_tokens import end_tokens
from engine.chat.stream_decoder import StreamDecoder
from engine.checkpoint.gguf.header import read_gguf
from engine.checkpoint.gguf.metadata import Metadata
from engine.errors import CheckpointError, MoeChatError, UnsupportedModelError
from engine.sampling.defaults import ModelDefaults
from tests.gguf_files import tokenizer_keys
from tests.llama_cpp import has_llama_cpp, llama_pieces, llama_tokens
from tests.llama_cpp_vocabularies import vocabularies
from tests.tokenizer_texts import CONTROL, tokenizer_texts
from tests.unit.engine.checkpoint.gguf import raw_gguf

long = pytest.mark.long
ROUGH_IN_LLAMA_CPP = {"tekken", "gpt-4o", "llama4", "kanana2", "minimax-m2", "kimi-k2"}
"""Rules that llama.cpp writes only roughly: it tells neither upper from lower case beyond ASCII, nor combining marks
from signs."""
needs_llama_cpp = pytest.mark.skipif(not has_llama_cpp(), reason="the wheel xllamacpp is not installed")


def write(path: Path, arch: str = "qwen3moe", template: str | None = "", **changed: Any) -> Path:
    """A file with a tokenizer alone. `changed` keys of `tokenizer.ggml`; None: left out."""
    keys = tokenizer_keys(arch, 100, template) | {
        (name if "." in name else f"tokenizer.ggml.{name}"): value for name, value in changed.items()
    }
    writer = gguf.GGUFWriter(path, "llama")  # llama.cpp wants the keys of an architecture: these few are enough
    for key, number in (
        ("context_length", 64),
        ("embedding_length", 32),
        ("block_count", 1),
        ("feed_forward_length", 32),
    ):
        writer.add_uint32(f"llama.{key}", number)
    writer.add_uint32("llama.attention.head_count", 1)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-6)
    for key, value in keys.items():
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif value is not None:
            writer.add_string(key, str(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def made(path: Path) -> GgufTokenizer:
    return read_tokenizer(Metadata(read_gguf(path)))


@needs_llama_cpp
@pytest.mark.parametrize(
    "rule", ["qwen2", "glm4", "gpt-4o", None, *(pytest.param(name, marks=long) for name in SPLITTERS)]
)
def test_ids_are_those_of_llama_cpp(tmp_path: Path, rule: str | None) -> None:
    path = write(tmp_path / "a.gguf", pre=rule, bos_token_id=5)
    texts = tokenizer_texts(250, 3, ("<|im_start|>", "<|im_end|>"))
    tokenizer = made(path).tokenizer
    for text in texts:
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text
    if rule in ROUGH_IN_LLAMA_CPP:
        texts = [text for text in texts if not has_case_or_marks(text)]
        assert len(texts) > 100
    for adds in (False, True):
        theirs = llama_tokens(path, texts, adds=adds)
        differ = [
            text
            for text, ids in zip(texts, theirs, strict=True)
            if tokenizer.encode(text, add_special_tokens=adds) != ids
        ]
        assert not differ


def has_case_or_marks(text: str) -> bool:
    """Whether it holds a letter beyond ASCII with case, or a combining mark."""
    kinds = (unicodedata.category(letter) for letter in text if letter > "\x7f")
    return any(kind in ("Lu", "Ll", "Lt") or kind.startswith("M") for kind in kinds)


_AFTER_A_WORD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_NOT_HAN = r"(?!\p{Han})"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_DEFINITIONS = {
    "gpt-4o": rf"{_BEFORE}{_UPPER}*{_LOWER}+{_AFTER_A_WORD}|{_BEFORE}{_UPPER}+{_LOWER}*{_AFTER_A_WORD}|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}",
    "tekken": rf"{_BEFORE}{_UPPER}*{_LOWER}+|{_BEFORE}{_UPPER}+{_LOWER}*|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}",
    "kimi-k2": rf"\p{{Han}}+|{_BEFORE}(?:{_NOT_HAN}{_UPPER})*(?:{_NOT_HAN}{_LOWER})+{_AFTER_A_WORD}"
    rf"|{_BEFORE}(?:{_NOT_HAN}{_UPPER})+(?:{_NOT_HAN}{_LOWER})*{_AFTER_A_WORD}|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}",
    "bailingmoe": rf"'(?i:[sdmt]|ll|ve|re)|{_BEFORE}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]"
    r"|\s+(?!\S)|\s+",
}


@pytest.mark.parametrize("rule", _DEFINITIONS)
def test_words_are_those_of_the_models_own_rule(rule: str) -> None:
    # Rules that llama.cpp writes roughly, as their makers wrote them.
    own, splitter = regex.compile(_DEFINITIONS[rule]), SPLITTERS[rule].pre_tokenizer()
    for text in tokenizer_texts(3000, 11):
        words = [text[start:end] for _, (start, end) in splitter.pre_tokenize_str(text)]
        assert words == own.findall(text), text


_REAL = (
    "aquila", "baichuan", "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gpt-2", "gpt-neox", "llama-bpe",
    "llama-spm", "mpt", "phi-3", "qwen2", "qwen35", "refact", "starcoder",
)  # fmt: skip


def test_a_sample_of_real_vocabularies() -> None:
    paths = vocabularies(fetches=False)
    if not paths or not has_llama_cpp():
        pytest.skip("there are no real vocabularies here, or no llama.cpp")
    for name in ("llama-spm", "deepseek-coder"):
        assert_like_llama_cpp(paths[name], tokenizer_texts(300, 5, control_of(name)))


@needs_llama_cpp
@pytest.mark.long
@pytest.mark.parametrize("name", _REAL)
def test_real_vocabularies_are_read_as_llama_cpp_reads_them(name: str) -> None:
    try:
        paths = vocabularies()
    except OSError as error:
        pytest.skip(f"real vocabularies cannot be had: {error}")
    assert_like_llama_cpp(paths[name], tokenizer_texts(10_000, 7, control_of(name)))


@needs_llama_cpp
@pytest.mark.long
def test_sentencepiece_without_a_space_before_a_text(tmp_path: Path) -> None:
    source = vocabularies(fetches=False).get("llama-spm")
    if source is None:
        pytest.skip("there are no real vocabularies here")
    content = source.read_bytes()
    added = raw_gguf.key("tokenizer.ggml.add_space_prefix", raw_gguf.BOOL, b"\0")
    (num_keys,) = struct.unpack_from("<Q", content, 16)
    path = tmp_path / "a.gguf"
    path.write_bytes(content[:16] + struct.pack("<Q", num_keys + 1) + added + content[24:])
    assert_like_llama_cpp(path, tokenizer_texts(10_000, 9, control_of("llama-spm")))


def control_of(name: str) -> tuple[str, ...]:
    # llama.cpp takes `</s>` for a control token wherever it exists, and strips text behind phi-3's control tokens by
    # the model's name.
    return () if name == "phi-3" else tuple(text for text in CONTROL if text != "</s>")


def assert_like_llama_cpp(path: Path, texts: Sequence[str]) -> None:
    """The ids of the texts, the texts of these ids, and those of ids at random."""
    tokenizer = made(path).tokenizer
    theirs = llama_tokens(path, texts)
    differ = [text for text, ids in zip(texts, theirs, strict=True) if tokenizer.encode(text, False) != ids]
    assert not differ
    is_bytes = tokenizer.backend_tokenizer.normalizer is None
    if is_bytes:  # SentencePiece's decoder writes another number of replacement characters for damaged bytes
        rng = random.Random(1)
        theirs += [rng.choices(range(len(tokenizer)), k=12) for _ in range(len(texts) // 10)]
    for ids, piece in zip(theirs, llama_pieces(path, theirs), strict=True):
        text = piece.decode(errors="replace")
        if "[UNK_BYTE_" in text:  # what llama.cpp writes of a letter in a byte-level token that stands for no byte
            continue
        assert tokenizer.decode(ids) in ((text,) if is_bytes else (text, text.removeprefix(" ")))


@pytest.mark.parametrize(
    ("arch", "ends"), [("qwen3moe", {"<|im_end|>", "<|endoftext|>"}), ("glm4moe", {"<|user|>", "<|endoftext|>"})]
)
def test_what_ends_an_answer(tmp_path: Path, arch: str, ends: set[str]) -> None:
    found = made(write(tmp_path / "a.gguf", arch))
    assert {found.tokenizer.convert_ids_to_tokens(number) for number in found.end_tokens} == ends
    encoder = ConversationEncoder(found.tokenizer)
    defaults = ModelDefaults(end_tokens=found.end_tokens)
    assert end_tokens(found.tokenizer, defaults, (), encoder.template) == found.end_tokens


def test_every_kind_of_end_is_read(tmp_path: Path) -> None:
    found = made(write(tmp_path / "a.gguf", eos_token_id=3, eot_token_id=4, eom_token_id=5))
    assert {3, 4, 5} < found.end_tokens
    assert found.tokenizer.added_tokens_decoder[4].special


def test_a_chat_is_encoded_by_its_template(tmp_path: Path) -> None:
    tokenizer = made(write(tmp_path / "a.gguf")).tokenizer
    ids = ConversationEncoder(tokenizer).encode([Message("user", "Say <|im_end|> please.")])
    text = "<|im_start|>user\nSay <|im_end|> please.<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(ids) == text
    end = tokenizer.encode("<|im_end|>", add_special_tokens=False)
    assert len(end) == 1
    assert ids.count(end[0]) == 1, "what the user wrote is text"
    stream = StreamDecoder(tokenizer)
    pieces = [stream.step(token) for token in ids]
    assert "".join([*pieces, stream.finish()]) == "user\nSay <|im_end|> please.\nassistant\n"


def test_bos_and_eos_frame_a_text_where_the_file_says_so(tmp_path: Path) -> None:
    keys = {"bos_token_id": 7, "eos_token_id": 8, "add_bos_token": True, "add_eos_token": True}
    tokenizer = made(write(tmp_path / "a.gguf", **keys)).tokenizer
    ids = tokenizer("sea")["input_ids"]
    assert (ids[0], ids[-1]) == (7, 8)
    assert tokenizer.encode("sea", add_special_tokens=False) == ids[1:-1]
    assert tokenizer.special_tokens_map["bos_token"] == tokenizer.convert_ids_to_tokens(7)
    assert made(write(tmp_path / "b.gguf", bos_token_id=2**32 - 1)).tokenizer.bos_token_id is None


def test_texts_of_tokens_that_stand_for_themselves(tmp_path: Path) -> None:
    keys = tokenizer_keys("qwen3moe", 100)
    tokens, kinds = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]
    assert isinstance(tokens, list)
    assert isinstance(kinds, list)
    own, unused = len(tokens), len(tokens) + 1
    path = write(tmp_path / "a.gguf", tokens=[*tokens, "öß", "[PAD7]"], token_type=[*kinds, USER_DEFINED, UNUSED])
    tokenizer = made(path).tokenizer
    ids = tokenizer.encode("aößb", add_special_tokens=False)
    assert own in ids
    assert tokenizer.decode(ids) == "aößb"
    assert tokenizer.decode([own, unused, own]) == "ößöß"
    assert tokenizer.decode([unused]) == ""


def test_templates_by_name(tmp_path: Path) -> None:
    names = {"tokenizer.chat_templates": ["tools"], "tokenizer.chat_template.tools": "T"}
    tokenizer = made(write(tmp_path / "a.gguf", template="D", **names)).tokenizer
    assert tokenizer.chat_template == {"default": "D", "tools": "T"}
    assert tokenizer.get_chat_template() == "D"
    assert made(write(tmp_path / "b.gguf", template=None)).tokenizer.chat_template is None
    alone = made(write(tmp_path / "c.gguf", template=None, **names)).tokenizer
    with pytest.raises(CheckpointError, match=r"c\.gguf has no chat template to use"):
        ConversationEncoder(alone)


WRONG: list[tuple[dict[str, Any], type[MoeChatError], str]] = [
    ({"pre": "whale"}, UnsupportedModelError, r"by the rule 'whale' \(tokenizer\.ggml\.pre\)"),
    ({"model": "bert"}, UnsupportedModelError, r"of the kind 'bert' \(tokenizer\.ggml\.model\)"),
    ({"model": None}, CheckpointError, r"tokenizer\.ggml\.model is missing"),
    ({"model": "llama"}, CheckpointError, r"tokenizer\.ggml\.scores is missing"),
    ({"tokens": ["a", "b", "a"]}, CheckpointError, r"tokenizer\.ggml\.tokens holds 'a' twice"),
    ({"tokens": 7}, CheckpointError, r"tokens is 7, where a list of texts"),
    ({"token_type": [1, 1]}, CheckpointError, r"token_type has 2 values, where \d+"),
    ({"token_type": [9] * 359}, CheckpointError, r"token_type holds 9 to 9, where 1 to 6"),
    ({"merges": None}, CheckpointError, r"tokenizer\.ggml\.merges is missing"),
    ({"merges": ["ab"]}, CheckpointError, r"merges holds 'ab', which are no two tokens"),
    ({"merges": ["zz zz"]}, CheckpointError, r"merges does not fit the tokens"),
    ({"eos_token_id": 4000}, CheckpointError, r"eos_token_id is 4000, and there are \d+ tokens"),
    ({"bos_token_id": "x"}, CheckpointError, r"bos_token_id is 'x'"),
    ({"add_bos_token": 1}, CheckpointError, r"add_bos_token is 1, where true or false"),
    ({"tokenizer.chat_template": 5}, CheckpointError, r"chat_template is 5, where text"),
    ({"tokenizer.chat_template": "x" * (2 << 20)}, CheckpointError, "2097152 characters"),
]


@pytest.mark.parametrize(("changed", "kind", "message"), WRONG)
def test_damaged_tokenizers(tmp_path: Path, changed: dict[str, Any], kind: type[MoeChatError], message: str) -> None:
    path = write(tmp_path / "a.gguf", **changed)
    with pytest.raises(kind, match=message) as caught:
        made(path)
    assert str(path) in caught.value.message
