"""One block of code of an answer: which one is meant, and writing it to a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from app.formatting.figures import counted
from app.formatting.markdown import CodeBlock
from app.storage.export import write_file
from engine.errors import MoeChatError


class CodeBlockError(MoeChatError):
    """No block of code is meant, or no file for it is named."""

    title = "Code"


def chosen(blocks: Sequence[CodeBlock], number: str = "") -> CodeBlock:
    """The block with that number; without one the last. Raises CodeBlockError."""
    if not blocks:
        raise CodeBlockError("There is no block of code in the answer.", "")
    if not number:
        return blocks[-1]
    block = next((block for block in blocks if str(block.number) == number), None)
    if block is None:
        known = "one block of code" if len(blocks) == 1 else f"{len(blocks)} blocks of code"
        hint = f"Name a number from 1 to {len(blocks)}."
        raise CodeBlockError(f"The answer has {known}, and no block {number[:20]!r}.", hint)
    return block


def read_save(blocks: Sequence[CodeBlock], asked: str) -> tuple[CodeBlock, str]:
    """What `NUMBER FILE` asks for: a block, and the name of a file, which may be empty. Raises CodeBlockError.

    Without a number the last block is meant.
    """
    first, _, rest = asked.strip().partition(" ")
    if first.isdecimal():
        return chosen(blocks, first), rest.strip()
    return chosen(blocks), asked.strip()


def save(block: CodeBlock, name: str) -> Path:
    """Write a block to a new file; one that is there stays as it is. Returns where it is. Raises ExportError."""
    return write_file(Path(name), block.text + "\n")


def about(block: CodeBlock) -> str:
    """`block 2, python, 12 lines`."""
    num_lines = block.text.count("\n") + 1
    return ", ".join(filter(None, (f"block {block.number}", block.language, counted(num_lines, "line"))))


def free_name(block: CodeBlock, suffix: str, folder: Path) -> str:
    """A name for a file of a block that is not in the folder yet, such as `code-2.py`."""
    name, number = f"code-{block.number}{suffix}", 2
    while (folder / name).exists():
        name, number = f"code-{block.number}-{number}{suffix}", number + 1
    return name
