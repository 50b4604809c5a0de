"""Texts on which tokenizers differ: scripts, digits, spaces, contractions, emoji, control strings, from a seed."""

from __future__ import annotations

import random
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


def tokenizer_texts(count: int, seed: int = 0, control: tuple[str, ...] = ()) -> list[str]:
    """Every piece by itself, then random sequences of pieces, with the `control` strings among them."""
    rng = random.Random(seed)
    pieces = [*_PIECES, *control]
    texts = list(pieces)
    while len(texts) < count:
        glue = rng.choice(("", "", " "))
        texts.append(glue.join(rng.choices(pieces, k=rng.randint(2, 12))))
    return texts[:count]
