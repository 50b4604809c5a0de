"""The operations of recurrent layers. Each adds one node or more, with shapes and types checked beforehand."""

from __future__ import annotations

from typing import NamedTuple

from engine.backends.ggml.graph_tensors import Tensor, TensorBuilder, require
from engine.backends.ggml.tensor_types import F32


class DeltaInputs(NamedTuple):
    """Of every token and head, float32."""

    query: Tensor
    """[dim, heads, tokens], of length 1"""
    key: Tensor
    """The same."""
    value: Tensor
    """[dim, heads, tokens]"""
    log_decay: Tensor
    """[1, heads, tokens]"""
    beta: Tensor
    """[1, heads, tokens]"""


class DeltaOperations(TensorBuilder):
    """A causal convolution, and the gated delta rule."""

    def copied(self, source: Tensor, target: Tensor) -> Tensor:
        """Writes the values of `source` into `target`, of as many; returns the target."""
        fits = source.shape == target.shape and source.type_id == target.type_id == F32 and not target.strides
        require(fits, "a copy", source, target)
        return target._replace(pointer=self._ggml.cpy(self._context, source.pointer, target.pointer))

    def turned(self, rows: Tensor) -> Tensor:
        """rows [n, count] -> [count, n], a copy."""
        require(len(rows.shape) == 2 and not rows.strides, "a transpose", rows)
        turned = self._ggml.cont(self._context, self._ggml.transpose(self._context, rows.pointer))
        return Tensor(turned, rows.type_id, (rows.shape[1], rows.shape[0]))

    def heads_of(self, rows: Tensor, first: int, num_heads: int, dim: int) -> Tensor:
        """Values `first` to `first + num_heads * dim` of rows [n, tokens] as [dim, heads, tokens]: a view."""
        row_bytes = self.strides_of(rows)[0]
        fits = len(rows.shape) == 2 and first >= 0 and first + num_heads * dim <= rows.shape[0]
        require(fits and rows.type_id == F32, f"{num_heads} heads of {dim} at {first}", rows)
        return self.view(rows, (dim, num_heads, rows.shape[1]), (4 * dim, row_bytes), 4 * first)

    def unit_rows(self, rows: Tensor, eps: float) -> Tensor:
        """Every row over the square root of the sum of its squares plus eps."""
        require(rows.type_id == F32 and eps >= 0, "rows of length 1", rows)
        dim = rows.shape[0]
        out = self._ggml.rms_norm(self._context, rows.pointer, eps / dim)
        return rows.made(self._ggml.scale(self._context, out, dim**-0.5))

    def repeated_heads(self, heads: Tensor, times: int) -> Tensor:
        """heads [dim, n, tokens] -> [dim, n * times, tokens]: each head so often, one after the other."""
        require(len(heads.shape) == 3 and not heads.strides and times >= 1, f"heads {times} times", heads)
        dim, num_heads, num_tok = heads.shape
        if times == 1:
            return heads
        single = self._ggml.reshape_3d(self._context, heads.pointer, dim, 1, num_heads * num_tok)
        out = self._ggml.repeat_4d(self._context, single, dim, times, num_heads * num_tok, 1)
        shape = (dim, num_heads * times, num_tok)
        return Tensor(self._ggml.reshape_3d(self._context, out, *shape), F32, shape)

    def silu(self, values: Tensor) -> Tensor:
        """value / (1 + exp(-value))."""
        require(values.type_id == F32 and not values.strides, "a silu", values)
        return values.made(self._ggml.silu(self._context, values.pointer))

    def softplus(self, values: Tensor) -> Tensor:
        """log(1 + exp(value))."""
        require(values.type_id == F32 and not values.strides, "a softplus", values)
        return values.made(self._ggml.softplus(self._context, values.pointer))

    def convolved(self, window: Tensor, weights: Tensor) -> Tensor:
        """Every channel over time: window [conv - 1 + tokens, channels], weights [conv, channels] -> [channels,
        tokens]."""
        fits = len(window.shape) == 2 == len(weights.shape) and window.shape[1] == weights.shape[1]
        num_tok = window.shape[0] - weights.shape[0] + 1
        fits = fits and num_tok >= 1 and window.type_id == weights.type_id == F32
        require(fits and not window.strides and not weights.strides, "a convolution", window, weights)
        out = self._ggml.ssm_conv(self._context, window.pointer, weights.pointer)
        return Tensor(out, F32, (window.shape[1], num_tok))

    def delta_rule(self, inputs: DeltaInputs, state: Tensor) -> tuple[Tensor, Tensor]:
        """state float32 [dim, dim, heads] before the first token -> (output [dim, heads, tokens], which is scaled by 1
        / sqrt(dim); the state after the last one). Both are views."""
        dim, num_heads, num_tok = inputs.value.shape
        fits = inputs.query.shape == inputs.key.shape and inputs.key.shape[::2] == (dim, num_tok)
        fits = fits and num_heads % inputs.key.shape[1] == 0 and state.shape == (dim, dim, num_heads)
        fits = fits and inputs.log_decay.shape == inputs.beta.shape == (1, num_heads, num_tok)
        fits = fits and all(each.type_id == F32 and not each.strides for each in (*inputs, state))
        require(fits, "a delta rule", *inputs, state)
        pointers = [each.pointer for each in (*inputs, state)]
        out = self._ggml.gated_delta_net(self._context, *pointers, 1)
        whole = Tensor(out, F32, (dim * num_heads, num_tok + dim))
        row = 4 * dim
        given = self.view(whole, (dim, num_heads, num_tok), (row, row * num_heads), 0)
        after = self.view(whole, (dim, dim, num_heads), (row, row * dim), row * num_heads * num_tok)
        return given, after
