"""On wide models, the correction finds more experts than the plain prediction, and `bench prediction` tells by rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.backends.offloaded_model import OffloadedModel
from engine.commands.bench import workload
from engine.commands.bench.prediction import AFTER_ATTENTION, bench_prediction
from engine.lookahead.forms import Way
from engine.profiles.prompt_sets import shipped_domains
from tests.unit.engine.commands.tiny_bench import config_of
from tests.wide_checkpoint import WIDE_SHAPES, save_wide_checkpoint


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.long if n != "olmoe" else ()) for n in WIDE_SHAPES])
def test_recall_by_layer_and_rank(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "shipped_domains", lambda: shipped_domains()[:3])
    shape = WIDE_SHAPES[name]._replace(num_layers=4)
    folder = save_wide_checkpoint(tmp_path / name, shape)
    engine = OffloadedModel(config_of(folder, residency=0.5), folder, lambda progress: None, lambda: False)
    try:
        assert {form.way for form in engine.lookahead.forms()} == {Way.SHORT}
        outcome = bench_prediction(engine, True, lambda stage, done, total: None, lambda: False)
    finally:
        engine.close()
    near = outcome.report[f"{AFTER_ATTENTION}, l+1"]
    assert isinstance(near, dict)
    plain, corrected = near["plain"], near["corrected"]
    assert set(plain) == set(corrected) == set(range(1, shape.num_layers))
    for layer, rates in plain.items():
        assert set(rates) == {1, 2, 4, 8}
        assert rates[1] > rates[8] > 2 * shape.top_k / shape.num_experts, "ranked, and better than chance"
        assert corrected[layer][8] >= rates[8] - 0.02
    mean = {kind: sum(rates[8] for rates in near[kind].values()) / len(plain) for kind in ("plain", "corrected")}
    if name != "deepseek_v3":  # its experts add more to the residual than its shift does
        assert mean["corrected"] > mean["plain"] + 0.05
    assert any("first 4" in line for line in outcome.lines)
