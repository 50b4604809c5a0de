"""A model's numbers and tensors under one set of names, from GGUF or from config.json and safetensors.

The names are GGUF's: `attention.head_count`, `blk.3.attn_q.weight`. Whoever makes a StoredModel translates into them.
What nobody asks for is refused in the end: a key or a tensor that is not used would change the result in silence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from engine.backends.ggml.model_spec import ExpertWeights, StoredWeight
from engine.backends.ggml.tensor_types import F32
from engine.errors import CheckpointError, UnsupportedModelError

_ABSENT = object()
_OF_BLOCK = re.compile(r"blk\.(\d{1,6})\.")
_HINT = "Fetch the model again, or use another version of it."


class StoredModel:
    """`numbers` without the architecture's prefix; `weights` by name."""

    def __init__(
        self,
        name: str,
        family: str,
        numbers: Mapping[str, object],
        weights: Mapping[str, StoredWeight],
        harmless: Callable[[str], bool] = lambda key: False,
        is_converted: bool = False,
    ) -> None:
        """`harmless(key)`: a key that changes nothing in the result, used or not. `is_converted`: llama.cpp's converter
        wrote it, which changes tensors of some families."""
        self.name, self.family, self.is_converted = name, family, is_converted
        self._numbers, self._weights, self._harmless = numbers, weights, harmless
        self._used: set[str] = set()

    @property
    def numbers(self) -> Mapping[str, object]:
        """Every number, whether it was asked for or not."""
        return self._numbers

    # -- numbers ------------------------------------------------------------------------------------------------------

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """Raises CheckpointError where it is missing, no whole number, or out of range."""
        value = self._value(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self._wrong(key, value, f"a whole number from {low} to {high}")
        return value

    def number(self, key: str, low: float, high: float, default: float | None = None) -> float:
        """As `integer`, for any number."""
        value = self._value(key, default)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not low <= value <= high:
            raise self._wrong(key, value, f"a number from {low:g} to {high:g}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """Raises CheckpointError where it is neither true nor false."""
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def choice(self, key: str, meanings: Mapping[str, str], default: str) -> str:
        """What the key's value means; `default` where it is not there. Raises UnsupportedModelError for others."""
        self.require(key, *meanings)
        return meanings[str(self._numbers[key])] if key in self._numbers else default

    def list_of(self, key: str, length: int) -> int | list[object] | None:
        """A whole number, or a list of so many values; None where it is not there. Raises CheckpointError."""
        value = self._value(key, False)
        if value is False:
            return None
        if isinstance(value, (tuple, list)) and len(value) == length:
            return list(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self._wrong(key, value, f"a whole number, or a list of {length} values")
        return value

    def says(self, key: str) -> bool:
        """Whether the key is there."""
        return key in self._numbers

    def ignore(self, *keys: str) -> None:
        """These keys change nothing in the result."""
        self._used.update(keys)

    def ignore_blocks(self, first: int) -> None:
        """The tensors of layers from this number on change nothing in the result."""
        for name in self._weights:
            found = _OF_BLOCK.match(name)
            if found is not None and int(found[1]) >= first:
                self._used.add(name)

    def require(self, key: str, *allowed: object) -> None:
        """Raises UnsupportedModelError where `key` is there with another value than these: it would change the
        result."""
        self._used.add(key)
        value = self._numbers.get(key, _ABSENT)
        if value is not _ABSENT and value not in allowed:
            raise UnsupportedModelError(
                f"{self.name}: {key} is {str(value)[:60]!r}, which the ggml back end does not compute.",
                "Use the model's safetensors checkpoint with --backend transformers.",
            )

    def _value(self, key: str, default: object) -> object:
        self._used.add(key)
        value = self._numbers.get(key, _ABSENT)
        if value is not _ABSENT:
            return value
        if default is None:
            raise CheckpointError(f"{self.name} does not say its {key}.", _HINT)
        return default

    def _wrong(self, key: str, value: object, wanted: str) -> CheckpointError:
        return CheckpointError(f"{self.name}: {key} is {str(value)[:60]!r}; it must be {wanted}.", _HINT)

    # -- tensors ------------------------------------------------------------------------------------------------------

    def weights(self) -> list[StoredWeight]:
        """Every stored tensor."""
        return list(self._weights.values())

    def has(self, name: str) -> bool:
        """Whether a tensor of this name is stored."""
        return name in self._weights

    def weight(self, name: str, *shape: int) -> StoredWeight:
        """The tensor, which must have this shape. Raises CheckpointError."""
        found = self.optional(name, *shape)
        if found is None:
            raise CheckpointError(f"{self.name} has no tensor {name}.", _HINT)
        return found

    def weight_of(self, name: str, *shapes: tuple[int, ...]) -> StoredWeight:
        """As `weight`, with one of these shapes."""
        stored = self._weights.get(name)
        return self.weight(name, *(stored.shape if stored is not None and stored.shape in shapes else shapes[0]))

    def optional(self, name: str, *shape: int) -> StoredWeight | None:
        """As `weight`; None where there is none."""
        self._used.add(name)
        found = self._weights.get(name)
        if found is not None and found.shape != shape:
            raise CheckpointError(
                f"{self.name}: {name} has the shape {list(found.shape)}, and its other numbers ask for {list(shape)}.",
                _HINT,
            )
        return found

    def network(self, prefix: str, suffix: str, hidden_dim: int, width: int) -> ExpertWeights | None:
        """A feed-forward network that is no routed expert; None where there is none."""
        names = [f"{prefix}ffn_{part}{suffix}.weight" for part in ("gate", "up", "down")]
        if not any(map(self.has, names)):
            return None
        gate, up, down = names
        return ExpertWeights(
            self.weight(gate, hidden_dim, width),
            self.weight(up, hidden_dim, width),
            self.weight(down, width, hidden_dim),
        )

    def experts(self, prefix: str, hidden_dim: int, width: int, count: int) -> tuple[ExpertWeights, ...]:
        """The routed experts of a layer: stacked, or each stored for itself. Biases are stacked. Raises
        UnsupportedModelError for biases that are no float32."""
        shapes = {"gate": (hidden_dim, width), "up": (hidden_dim, width), "down": (width, hidden_dim)}
        matrices, biases = self._gates_and_ups(prefix, hidden_dim, width, count), {}
        for part, shape in shapes.items():
            if part not in matrices:
                matrices[part] = self._expert_matrices(prefix, part, shape, count)
            biases[part] = self._expert_biases(f"{prefix}ffn_{part}_exps.bias", shape[1], count)
        return tuple(
            ExpertWeights(*(matrices[part][number] for part in shapes), *(biases[part][number] for part in shapes))
            for number in range(count)
        )

    def _expert_matrices(self, prefix: str, part: str, shape: tuple[int, int], count: int) -> list[StoredWeight]:
        stacked = f"{prefix}ffn_{part}_exps.weight"
        if self.has(stacked):
            whole = self.weight(stacked, *shape, count)
            return [whole.matrix(number) for number in range(count)]
        found = [self.weight(f"{prefix}ffn_{part}.{number}.weight", *shape) for number in range(count)]
        if len({each.type_id for each in found}) > 1:
            raise UnsupportedModelError(
                f"{self.name}: the experts of {stacked} are stored in different formats.",
                "Use a version whose experts of one layer are stored alike.",
            )
        return found

    def _gates_and_ups(self, prefix: str, hidden_dim: int, width: int, count: int) -> dict[str, list[StoredWeight]]:
        """Of experts whose gate and up are one matrix; none where they are two."""
        whole = self.optional(f"{prefix}ffn_gate_up_exps.weight", hidden_dim, 2 * width, count)
        if whole is None:
            return {}
        gates, ups = zip(*(whole.matrix(number).row_halves() for number in range(count)), strict=True)
        return {"gate": list(gates), "up": list(ups)}

    def _expert_biases(self, name: str, length: int, count: int) -> Sequence[StoredWeight | None]:
        whole = self.optional(name, length, count)
        if whole is None:
            return [None] * count
        if whole.type_id != F32:
            raise UnsupportedModelError(
                f"{self.name}: {name} is not stored as float32.", "Use a GGUF file of the model."
            )
        return [whole.matrix(number) for number in range(count)]

    def require_all_used(self) -> None:
        """Raises UnsupportedModelError for a key or tensor that no family code has asked for."""
        left = [key for key in self._numbers if key not in self._used and not self._harmless(key)]
        left += [name for name in self._weights if name not in self._used and not self._harmless(name)]
        if left:
            shown = ", ".join(left[:4]) + (f" and {len(left) - 4} more" if len(left) > 4 else "")
            raise UnsupportedModelError(
                f"{self.name} holds what the ggml back end does not compute: {shown}.",
                "Without it answers would be wrong. Use its safetensors checkpoint with --backend transformers.",
            )
