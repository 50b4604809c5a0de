"""Texts on which tokenizers differ: scripts, digits, spaces, contractions, emoji, marks, control characters and
strings, characters that only bytes can write, and long runs. From a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

_PIECES: Final = (
    "the", "The", "sea", "don't", "DON'T", "we'll", "I'VE", "it's'", "'s", "O'Neil", "naïve", "Übergröße", "façade",
    "Καλημέρα", "Привет", "мир", "שלום", "مرحبا", "नमस्ते", "ไทย", "日本語", "中文字", "한국어", "ქართული", "Việt",
    "1", "12", "123", "1234", "1234567", "3.14", "1,000,000", "٣٤", "½", "²", "Ⅳ", "0x1F", "12ab34",
    " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n ", "\u00a0", "\u3000", "\u2009",
    ".", ",", "...", "!?", "—", "…", "«»", "(", ")", "[]", "{}", "//", "/* */", "#!", "$x", "a_b", "=>", "<=",
    "|", "~", "^",
    "`code`", "🙂", "👩‍👩‍👧‍👦", "🇫🇷", "❤️", "e\u0301", "\u200b", "\ufeff", "𝔘𝔫𝔦", "ﬁ",
    "def f(x):\n    return x", "http://a.b/c?d=1", "user@host", "C++", "#include <a>",
)  # fmt: skip
CONTROL: Final = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "[gMASK]", "<sop>", "<|user|>", "<s>", "</s>", "<unk>")
_SCRIPTS: Final = (
    (0x21, 0x7E), (0xC0, 0x17E), (0x391, 0x3A1), (0x3B1, 0x3C9), (0x410, 0x44F), (0x531, 0x556), (0x5D0, 0x5EA),
    (0x621, 0x64A), (0x660, 0x669), (0x905, 0x939), (0x985, 0x98C), (0xB85, 0xB8A), (0xE01, 0xE30), (0x10D0, 0x10F0),
    (0x1100, 0x1112), (0x1780, 0x17B3), (0x2010, 0x2027), (0x2070, 0x2071), (0x20A0, 0x20B9), (0x2190, 0x21FF),
    (0x2200, 0x22FF), (0x2460, 0x249B), (0x2500, 0x257F), (0x3041, 0x3096), (0x30A1, 0x30FA), (0x4E00, 0x9FA5),
    (0xAC00, 0xD7A3), (0xFF01, 0xFF5E), (0x1F300, 0x1F5FF), (0x1F600, 0x1F64F), (0x20000, 0x2A6D6),
)  # fmt: skip
_MARKS: Final = ((0x300, 0x36F), (0x64B, 0x652), (0x93E, 0x94C), (0xE34, 0xE3A), (0x20D0, 0x20DC), (0xFE00, 0xFE0F))
_BYTES_ALONE: Final = (
    (0xE000, 0xE0FF),
    (0xF0000, 0xF00FF),
    (0x10FF00, 0x10FFFD),
    (0xE0020, 0xE007F),
    (0x1D400, 0x1D433),
)
_STEERING: Final = ((0x00, 0x1F), (0x7F, 0x9F), (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x2064), (0xFFF9, 0xFFFD))


def tokenizer_texts(count: int, seed: int = 0, control: tuple[str, ...] = ()) -> list[str]:
    """Every piece by itself, then random sequences of pieces and characters, with the `control` strings among them."""
    rng = random.Random(seed)
    pieces = [*_PIECES, *control]
    texts = list(pieces)
    kinds: tuple[Callable[[random.Random, list[str]], str], ...] = (_sentence, _sentence, _characters, _long_run)
    while len(texts) < count:
        texts.append(rng.choice(kinds)(rng, pieces))
    return texts[:count]


def _sentence(rng: random.Random, pieces: list[str]) -> str:
    return rng.choice(("", "", " ")).join(rng.choices(pieces, k=rng.randint(2, 12)))


def _characters(rng: random.Random, pieces: list[str]) -> str:
    """Words of random scripts, with marks, what only bytes can write, and control characters between and in them."""
    found = []
    for _ in range(rng.randint(1, 8)):
        low, high = rng.choice(_SCRIPTS)
        for _ in range(rng.randint(1, 6)):
            found.append(chr(rng.randint(low, high)))
            if rng.random() < 0.2:
                found.append(chr(rng.randint(*rng.choice((*_MARKS, *_BYTES_ALONE, *_STEERING)))))
        found.append(rng.choice(("", " ", "  ", "\n", rng.choice(pieces))))
    return "".join(found)


def _long_run(rng: random.Random, pieces: list[str]) -> str:
    """Up to some hundreds of the same, between two pieces."""
    low, high = rng.choice((*_SCRIPTS, *_MARKS, *_STEERING))
    what = rng.choice((chr(rng.randint(low, high)), " ", "\n", "0", "a", "=", rng.choice(pieces)))
    return rng.choice(pieces) + what * rng.choice((3, 17, 64, 200)) + rng.choice(pieces)
