"""Routers that are ranked in a layer's graph choose and predict what their definition says of the same logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends.ggml.decoder import GgmlDecoder
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

    def checked_layer(number: int, layer: Any) -> Any:
        def call(hidden: np.ndarray, index: np.ndarray, weights: np.ndarray, **options: bool) -> Any:
            if len(index) == 1 and engine.state.is_decode:
                expected = routings[number].choose(decoder._token.logits)
                assert np.array_equal(index, expected[0])
                assert np.allclose(weights, expected[1], rtol=1e-6)
                checked["chosen"] += 1
            return layer(hidden, index, weights, **options)

        return call

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
    decoder.layers.update({number: checked_layer(number, layer) for number, layer in decoder.layers.items()})
    try:
        engine.greedy_ids([3, 1, 4, 1, 5, 9], 40)
        learned = [each for row in lookahead._corrections for each in row.values() if each.is_used]
    finally:
        engine.close()
    assert checked["chosen"] >= 39
    assert checked["predicted"] >= 39
    assert learned, "predictions were corrected"
