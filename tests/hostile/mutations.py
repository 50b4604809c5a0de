"""A campaign of seeded damage: which file, and how. A case's number decides everything about it."""

from __future__ import annotations

import json
import math
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.hostile.archive_mutations import ARCHIVE_CHANGES, changed_archive
from tests.hostile.json_mutations import JSON_CHANGES, changed_json
from tests.hostile.templates import ENDLESS, TEMPLATES

MARKER = "was_run"
"""A file of this name, beside the damaged folder, is what code that was run would leave."""

AS_IT_IS = "as it is"
CODE = ("a pickle", "code of its own")
"""Ways to bring code along, for `pytorch_model.bin` and `config.json`."""

_INSTEAD: dict[str, Callable[[Path], None]] = {
    "a FIFO instead": os.mkfifo,
    "a folder instead": Path.mkdir,
    "a device instead": lambda path: path.symlink_to("/dev/zero"),
    "a terminal instead": lambda path: path.symlink_to("/dev/ptmx"),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "an empty file": lambda path: path.touch(),
    "nothing": lambda path: None,
    "a socket instead": lambda path: _bind(path),
    "a huge empty file": lambda path: _sparse(path),
}
_BYTES = ("flipped bytes", "flipped bytes", "cut short", "bytes inserted", "bytes repeated")
_VALUES = ("values not finite", "values of any size", "another model's")
_HEADER_OWN = ("the length", "shapes", "dtypes", "offsets", "two keys swapped", "renamed tensors", "missing tensors")
_JSON_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "tokenizer.json",
    "special_tokens_map.json",
)
CONFIG_KEYS = (
    "num_hidden_layers",
    "num_labels",
    "id2label",
    "vocab_size",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "num_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "max_position_embeddings",
    "rope_parameters",
    "rms_norm_eps",
    "layer_types",
    "auto_map",
    "model_type",
    "architectures",
    "dtype",
    "eos_token_id",
)


@dataclass(frozen=True, slots=True)
class Case:
    """One damaged file. `base` is the folder that is copied: `single`, `sharded` or `files`."""

    number: int
    base: str
    file: str
    how: str

    def __str__(self) -> str:
        return f"{self.number}: {self.file}, {self.how}"


def make_cases(count: int) -> list[Case]:
    """The first `count` cases, all kinds of files in turn."""
    return [_case(number) for number in range(count)]


def _case(number: int) -> Case:
    random = Random(number)
    base, file, kinds = _TARGETS[number % len(_TARGETS)]
    return Case(number, base, file, random.choice(kinds))


_JSON_KINDS = (*JSON_CHANGES, *JSON_CHANGES, *_BYTES, *_INSTEAD)
_HEADER_KINDS = (*JSON_CHANGES, *_BYTES, *_HEADER_OWN, *_HEADER_OWN, *_INSTEAD)
_ARCHIVE_KINDS = (*_BYTES, *_BYTES, *ARCHIVE_CHANGES, *_INSTEAD)
_TARGETS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("single", "config.json", ("one known key",)),
    ("single", "model.safetensors", _HEADER_KINDS),
    ("sharded", "model.safetensors.index.json", (*_JSON_KINDS, "another index")),
    *(("single", name, _JSON_KINDS) for name in _JSON_FILES),
    ("single", "chat_template.jinja", (*_BYTES, *_INSTEAD, *TEMPLATES)),
    ("files", "trace.npz", _ARCHIVE_KINDS),
    ("sharded", "a shard", (*_BYTES, *_INSTEAD, *_HEADER_OWN)),
    ("files", "profile.npz", _ARCHIVE_KINDS),
    ("files", "eviction.json", _JSON_KINDS),
    ("files", "prompts.jsonl", (*_JSON_KINDS, "a long line")),
    ("files", "activations.requests", _ARCHIVE_KINDS),
    ("files", "maths.predictor.safetensors", (*_HEADER_KINDS, *_VALUES)),
)

NUM_FILES = len(_TARGETS)


def damage(case: Case, folder: Path) -> Path:
    """Damages a copy of the case's base folder; returns the file. Nothing outside the folder is written."""
    random = Random(case.number + 1_000_000)
    path = folder / case.file
    if case.file == "a shard":
        path = random.choice(sorted(folder.glob("*.safetensors")))
    if case.how in _INSTEAD:
        path.unlink()
        _INSTEAD[case.how](path)
        return path
    content = path.read_bytes() if path.exists() else b""
    path.write_bytes(_changed(case, path, content, random))
    return path


def _changed(case: Case, path: Path, content: bytes, random: Random) -> bytes:
    marker = path.parent.parent / MARKER
    if case.how == AS_IT_IS:
        return content
    is_weights = case.file.endswith(".safetensors") or case.file == "a shard"
    if case.how in _BYTES:
        reach = _header_end(content) if is_weights else len(content)
        return _changed_bytes(content, case.how, random, reach)
    if case.how in TEMPLATES:
        return TEMPLATES[case.how](random, str(marker)).encode()
    if case.how == "a pickle":
        return _pickle(marker)
    if case.how == "code of its own":
        return _with_code(content, path, marker)
    if case.how.startswith("endless template"):
        return ENDLESS[case.number].encode()
    if case.how == "one known key":
        return _one_known_key(content, random)
    if case.how == "another index":
        return _another_index(content, random)
    if case.how == "a long line":
        return b'{"prompt": "' + b"a" * (64 << 20) + b'"}'
    if is_weights:
        return _changed_weights(content, case.how, random)
    if case.how in ARCHIVE_CHANGES and case.file.endswith((".npz", ".requests")):
        return changed_archive(content, case.how, random)
    return changed_json(content, case.how, random)


# -- bytes -------------------------------------------------------------------------------------------------------------


def _changed_bytes(content: bytes, how: str, random: Random, reach: int) -> bytes:
    """`reach`: where the interesting part ends."""
    changed, at = bytearray(content), random.randrange(max(reach, 1))
    if how == "flipped bytes":
        for _ in range(random.choice((1, 2, 8))):
            changed[random.randrange(reach)] ^= random.randint(1, 255)
    elif how == "cut short":
        del changed[random.choice((at, random.randrange(len(content)))) :]
    elif how == "bytes inserted":
        changed[at:at] = random.randbytes(random.choice((1, 3, 100)))
    else:
        changed[at:at] = changed[at : at + random.choice((1, 50, 1000))]
    return bytes(changed)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(20 << 30)


def _bind(path: Path) -> None:
    """A socket; its name may be longer than the system takes for one, so it is bound from its folder."""
    before = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    finally:
        os.chdir(before)


def _pickle(marker: Path) -> bytes:
    """A pickle that writes the marker when it is opened."""
    return b"cposix\nsystem\n(S'touch %s'\ntR." % str(marker).encode()


# -- weights -----------------------------------------------------------------------------------------------------------


def _header_end(content: bytes) -> int:
    return min(8 + int.from_bytes(content[:8], "little"), len(content))


def _changed_weights(content: bytes, how: str, random: Random) -> bytes:
    end = _header_end(content)
    text, values = content[8:end], content[end:]
    if how == "the length":
        length = random.choice((0, 1, len(text) - 1, len(text) + 1, 1 << 20, 1 << 40, (1 << 64) - 1))
        return struct.pack("<Q", length) + text + values
    if how in _VALUES:
        return content[:8] + _changed_values(text, values, how, random)
    changed = _changed_header(text, how, random) if how in _HEADER_OWN else changed_json(text, how, random)
    return struct.pack("<Q", len(changed)) + changed + values


def _changed_header(text: bytes, how: str, random: Random) -> bytes:
    header: dict[str, Any] = json.loads(text)
    keys = [key for key in header if key != "__metadata__"]
    for key in random.sample(keys, min(random.choice((1, 1, 5, len(keys))), len(keys))):
        entry = header[key]
        if how == "shapes":
            entry["shape"] = random.choice(
                (entry["shape"][::-1], [1, *entry["shape"]], [*entry["shape"], 1], [-1], [0], [], [2**40, 2**40], [1.0])
            )
        elif how == "dtypes":
            entry["dtype"] = random.choice(("F64", "BF16", "I32", "BOOL", "F8_E4M3", "F4", "C64", "", "f32", 7, None))
        elif how == "offsets":
            shift = random.choice((-4, 4, 2**40, -(2**62)))
            entry["data_offsets"] = [
                entry["data_offsets"][0] + shift,
                entry["data_offsets"][1] + random.choice((0, shift)),
            ]
        elif how == "two keys swapped":
            other = random.choice(keys)
            header[key], header[other] = header[other], header[key]
        elif how == "renamed tensors":
            header[random.choice((key + "x", key.replace(".1.", ".77."), "y" * 5000, ""))] = header.pop(key)
            break
        else:
            del header[key]
    return json.dumps(header).encode()


def _changed_values(text: bytes, values: bytes, how: str, random: Random) -> bytes:
    """Header and values of a predictor, with others in their place."""
    if how == "another model's":
        return text.replace(b'"hostile"', b'"hostilE"') + values
    kinds = (math.nan, math.inf, -math.inf) if how == "values not finite" else (3e38, -3e38, 1e-45)
    changed = bytearray(values)
    for _ in range(random.choice((1, 5, 1000))):
        struct.pack_into("<f", changed, 4 * random.randrange(len(values) // 4), random.choice(kinds))
    return text + bytes(changed)


def _with_code(content: bytes, path: Path, marker: Path) -> bytes:
    """A configuration that wants classes from a file beside it, which leaves the marker when it is imported."""
    (path.parent / "own.py").write_text(f"open({str(marker)!r}, 'w')\n")
    classes = {name: f"own.{name}" for name in ("AutoConfig", "AutoModelForCausalLM", "AutoTokenizer")}
    return json.dumps(json.loads(content) | {"auto_map": classes}).encode()


# -- config and index --------------------------------------------------------------------------------------------------


def _one_known_key(content: bytes, random: Random) -> bytes:
    """A key that means something gets a value that does not."""
    config = json.loads(content)
    sizes = (-1, 0, 1, 2, 7, 10**5, 10**9, 2**31 - 1, 2**63, 10**30, 1.5, "8", None, [8], [], {}, True)
    config[random.choice(CONFIG_KEYS)] = random.choice(sizes)
    return json.dumps(config).encode()


def _another_index(content: bytes, random: Random) -> bytes:
    index = json.loads(content)
    weight_map = index["weight_map"]
    keys = list(weight_map)
    for key in random.sample(keys, random.choice((1, 5, len(keys)))):
        names = ("../config.json", "/etc/passwd", "config.json", "gone.safetensors", "", "a\0b", "x" * 5000, None, 3)
        weight_map[key] = random.choice(names)
    return json.dumps(index).encode()
