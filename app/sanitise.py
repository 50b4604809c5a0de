"""Model output and user text are shown, never obeyed: control characters become visible signs."""

from __future__ import annotations

_PICTURES: dict[int, int | str] = {code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)}
_PICTURES |= {0x7F: 0x2421}
_PICTURES |= {code: f"‹{code:02X}›" for code in range(0x80, 0xA0)}
_PICTURES |= {code: f"‹{code:04X}›" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F)}
_PICTURES |= dict.fromkeys(range(0xD800, 0xE000), "�")


def visible(text: str) -> str:
    """`text` with control, text-direction and lone surrogate characters made visible; line ends and tabs stay."""
    return text.replace("\r\n", "\n").translate(_PICTURES)
