"""What the panels remember: outcomes of an answer, experts in use, and layers' hit rates."""

from __future__ import annotations

from dataclasses import replace

from app.telemetry.expert_use import HOT, ExpertUse
from app.telemetry.outcomes import OutcomeHistory, Outcomes
from app.telemetry.panel_history import PanelHistory
from engine.events import HOST, IN_USE, RESIDENT, SUBSTITUTE, Snapshot
from offload.counters import Counters
from tests.functional.app.fake_engine import READY, snapshot


def _served(hits: int, late: int = 0, misses: int = 0, substituted: int = 0) -> Snapshot:
    routed = hits + late + misses + substituted
    counters = Counters(routed=routed, resident_hits=hits, late=late, capacity_misses=misses, substituted=substituted)
    return replace(snapshot(2, phase="decode"), turn_counters=counters)


def _layer(*codes: int, phase: str = "decode") -> Snapshot:
    return replace(snapshot(2, phase=phase, num_layers=1), residency=(bytes(codes),))


def test_outcomes_are_what_happened_between_two_looks() -> None:
    history = OutcomeHistory()
    for state in (_served(8, misses=2), _served(8, misses=2), _served(17, late=1, misses=2, substituted=3)):
        history.see(state)
    assert list(history.samples) == [Outcomes(8, 0, 0, 2), Outcomes(9, 3, 1, 0)]
    assert history.samples[1].routed == 13


def test_another_answer_begins_its_own_history() -> None:
    history = OutcomeHistory()
    history.see(_served(50, late=4))
    history.see(_served(3, misses=1))
    assert list(history.samples) == [Outcomes(3, 0, 0, 1)]


def test_experts_at_work_are_counted_once_a_look_and_only_in_decode() -> None:
    use = ExpertUse()
    use.see(_layer(IN_USE, RESIDENT, SUBSTITUTE, HOST))
    use.see(_layer(IN_USE, IN_USE, HOST, HOST))
    use.see(_layer(IN_USE, IN_USE, HOST, HOST, phase="idle"))
    use.see(_layer(RESIDENT, RESIDENT, HOST, HOST))
    assert use.layers[0].counts == [2, 1, 1, 0]
    assert list(use.layers[0].recent) == [(0, 2), (0, 1)]
    assert use.layers[0].num_samples == 2


def test_hot_experts_are_those_often_at_work_lately() -> None:
    use = ExpertUse()
    for _ in range(40):
        use.see(_layer(IN_USE, *[HOST] * 15))
    resting = bytes([RESIDENT, RESIDENT, *[HOST] * 14])
    assert use.mark_hot([resting]) == (bytes([HOT, RESIDENT, *[HOST] * 14]),)
    for _ in range(40):
        use.see(_layer(HOST, IN_USE, *[HOST] * 14))
    assert use.mark_hot([resting]) == (bytes([RESIDENT, HOT, *[HOST] * 14]),)


def test_a_few_looks_make_no_expert_hot() -> None:
    use = ExpertUse()
    for _ in range(3):
        use.see(_layer(IN_USE, *[HOST] * 15))
    resting = bytes([RESIDENT, *[HOST] * 15])
    assert use.mark_hot([resting]) == (resting,)


def test_layers_of_another_model_are_left_as_they_are() -> None:
    use = ExpertUse()
    use.see(_layer(IN_USE, HOST))
    assert use.mark_hot([bytes(4), bytes(4)]) == (bytes(4), bytes(4))


def test_hit_rates_of_a_layer_are_those_between_looks() -> None:
    history = PanelHistory()
    for sequence, (hits, routed) in enumerate(((4, 8), (8, 12), (9, 16))):
        layers = (Counters(routed=routed, resident_hits=hits), Counters())
        history.see(replace(snapshot(sequence, phase="decode", num_layers=2), layer_counters=layers))
    assert history.layer_hit_rates(0) == [1.0, 0.25]
    assert history.layer_hit_rates(1) == [None, None]
    assert history.layer_hit_rates(7) == []


def test_a_state_seen_before_is_passed_over_and_a_new_model_starts_afresh() -> None:
    history = PanelHistory()
    state = replace(_served(5), sequence=7)
    history.see(state)
    history.see(state)
    assert len(history.outcomes.samples) == 1
    history.note([READY])
    assert history.snapshot is None
    assert not history.outcomes.samples
    history.see(state)
    assert len(history.outcomes.samples) == 1


def test_the_same_model_under_another_strategy_is_no_load() -> None:
    history = PanelHistory()
    history.follow(READY)
    num_lines = len(history.log.lines)
    history.see(_served(9))
    history.follow(replace(READY, effective=(("strategy", "lfu"),)))
    assert len(history.log.lines) == num_lines
    assert history.snapshot is None, "the figures begin again"
    history.follow(replace(READY, model_name="other"))
    assert len(history.log.lines) > num_lines
