"""Routers that are ranked in a layer's graph choose and predict what their definition says of the same logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.arrays import Array
from engine.backends.ggml.decoder import GgmlDecoder
from engine.commands.verify.layers import LayerCalls, RecordingCalls
from engine.experts.layer import MoeLayer
from tests.architectures.test_ggml_exact import open_model
from tests.gguf_files import write_gguf


@pytest.mark.parametrize("arch", ["qwen3moe", "glm4moe"])
def test_a_step_chooses_and_predicts_by_the_routers_definition(
    arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_model(write_gguf(tmp_path / "model.gguf", arch, "F16", layers=4), residency=0.4)
    decoder = engine.decoder
    assert isinstance(decoder, GgmlDecoder)
    lookahead, routings, checked = decoder.lookahead, decoder._routings, {"chosen": 0, "predicted": 0}
    predict = lookahead.predict

    compute = MoeLayer.__call__

    def checked_layer(layer: MoeLayer, hidden: Array, index: Array, weights: Array, **options: bool) -> Array:
        if len(index) == 1 and engine.state.is_decode:
            expected = routings[layer.number].choose(decoder._token.logits)
            assert np.array_equal(index, expected[0])
            assert np.allclose(weights, expected[1], rtol=1e-6)
            checked["chosen"] += 1
        return compute(layer, hidden, index, weights, **options)

    def checked_predict(layer: int, ahead: int) -> list[int]:
        correction = lookahead._corrections[ahead].get(layer)
        shift = 0.0 if correction is None else correction.shift
        row = lookahead.in_graph[layer].index(ahead)
        expected = routings[ahead].best(decoder._results.next_logits[row : row + 1] + shift)
        checked["predicted"] += 1
        predicted = predict(layer, ahead)
        assert predicted == expected
        return predicted

    monkeypatch.setattr(lookahead, "predict", checked_predict)
    monkeypatch.setattr(MoeLayer, "__call__", checked_layer)
    try:
        engine.greedy_ids([3, 1, 4, 1, 5, 9], 40)
        learned = [each for row in lookahead._corrections for each in row.values() if each.is_used]
    finally:
        engine.close()
    assert checked["chosen"] >= 39
    assert checked["predicted"] >= 39
    assert learned, "predictions were corrected"


def test_the_calls_of_layers_can_be_recorded(tmp_path: Path) -> None:
    """A decoder asks more of a layer than to be called."""
    engine = open_model(write_gguf(tmp_path / "model.gguf", "qwen3moe", "F16", layers=4), residency=0.4)
    checks = [LayerCalls() for _ in engine.layers]
    try:
        with RecordingCalls(engine, checks):
            engine.greedy_ids(list(range(40)), 2)
    finally:
        engine.close()
    assert [len(check.calls) for check in checks] == [2] * len(checks)
