"""Domain profiles: built from routing, kept, refused when they are not this model's."""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.errors import ProfileError
from offload.geometry import Geometry, LayerGeometry
from offload.policies.eviction import make_eviction
from offload.replay.profile import CURVE_POLICIES, build_profile, load_profile
from offload.replay.replay import replay
from offload.replay.trace import NO_EXPERT, RoutingTrace

GEOMETRY = Geometry((LayerGeometry(0, 8, 2, 64), LayerGeometry(1, 4, 1, 64)))


def make_trace(num_steps=80, has_scores=True, geometry=GEOMETRY, seed=0) -> RoutingTrace:
    random = np.random.default_rng(seed)
    widest = max(at.num_experts for at in geometry.layers)
    top_k = max(at.top_k for at in geometry.layers)
    scores = np.full((num_steps, geometry.num_layers, widest), np.nan, np.float16)
    ids = np.full((num_steps, geometry.num_layers, top_k), NO_EXPERT, np.uint16)
    for layer, at in enumerate(geometry.layers):
        scores[:, layer, : at.num_experts] = random.normal(size=(num_steps, at.num_experts)) + np.arange(at.num_experts)
        ids[:, layer, : at.top_k] = np.argsort(-scores[:, layer, : at.num_experts], axis=1)[:, : at.top_k]
    flags = np.arange(num_steps) % 20 < 5
    starts = np.arange(0, num_steps, 20)
    empty = np.full_like(ids, NO_EXPERT)
    return RoutingTrace("model-1", "maths", geometry, ids, empty, scores if has_scores else None, flags, starts)


@pytest.fixture(scope="module")
def profile():
    return build_profile(make_trace(), created_s=1.7e9)


def test_what_it_holds(profile):
    trace = make_trace()
    assert (profile.model, profile.domain, profile.created_s) == ("model-1", "maths", 1.7e9)
    assert (profile.num_prompts, profile.num_tok, profile.num_decode_tok) == (4, 80, 60)
    first = profile.layers[0]
    np.testing.assert_allclose(first.mean_scores, trace.scores[:, 0].astype(np.float64).mean(axis=0), rtol=1e-6)
    assert first.selections.sum() == 160
    assert profile.layers[1].selections.tolist() == np.bincount(trace.ids[:, 1, 0], minlength=4).tolist()
    assert build_profile(trace, created_s=0.0, domain="code").domain == "code"


def test_the_warm_start_is_the_highest_mean_scores(profile):
    assert profile.warm_start([3, 2]) == ((7, 6, 5), (3, 2))
    with pytest.raises(ProfileError, match="2 layers, and the model 1"):
        profile.warm_start([3])


@pytest.mark.parametrize("policy", CURVE_POLICIES)
def test_a_curve_is_what_a_replay_finds(profile, policy):
    trace = make_trace()
    for slots in ([2, 1], [4, 2], [8, 4]):
        result = replay(trace, make_eviction(policy, GEOMETRY), slots, initial=profile.warm_start(slots))
        for layer in range(2):
            assert profile.curves(policy)[layer].at(slots[layer]) == pytest.approx(result.layers[layer].hit_rate)
        assert profile.expected_hit_rate(slots, policy) == pytest.approx(result.total.hit_rate)


def test_a_long_curve_is_replayed_at_some_counts_and_straight_between():
    shape = Geometry((LayerGeometry(0, 100, 4, 64),))
    rates = build_profile(make_trace(60, geometry=shape), created_s=0.0).curves("lru")[0].rates
    assert rates.shape == (97,)
    assert rates[-1] == 1.0
    assert (np.diff(rates) >= 0).all()


def test_without_scores_selections_say_what_is_warm():
    profile = build_profile(make_trace(has_scores=False), created_s=0.0)
    assert profile.layers[0].mean_scores.tolist() == pytest.approx((profile.layers[0].selections / 80).tolist())
    assert profile.warm_start([2, 1])[0] == (7, 6)


def test_scores_that_are_no_numbers_are_left_out():
    trace = make_trace()
    scores = trace.scores.copy()
    scores[1:, 0, 7] = -np.inf
    scores[:, 0, 6] = np.nan
    profile = build_profile(replace(trace, scores=scores), created_s=0.0)
    assert profile.layers[0].mean_scores[7] == pytest.approx(float(scores[0, 0, 7]))
    assert profile.layers[0].warmest(8)[-1] == 6, "never scored, so never warm"


def test_no_answers_no_expectation():
    trace = make_trace()
    profile = build_profile(replace(trace, is_prefill=np.ones(80, bool)), created_s=0.0)
    assert profile.expected_hit_rate([4, 4]) is None
    with pytest.raises(ProfileError, match="no routing"):
        build_profile(make_trace(0), created_s=0.0)


def test_saved_and_loaded(profile, tmp_path):
    path = tmp_path / "maths.npz"
    profile.save(path)
    loaded = load_profile(path, ("model-0", "model-1"))
    for name in ("model", "domain", "created_s", "num_prompts", "num_tok", "num_decode_tok", "geometry"):
        assert getattr(loaded, name) == getattr(profile, name)
    for one, other in zip(loaded.layers, profile.layers, strict=True):
        np.testing.assert_array_equal(one.mean_scores, other.mean_scores)
        np.testing.assert_array_equal(one.selections, other.selections)
        for policy in CURVE_POLICIES:
            np.testing.assert_array_equal(one.curves[policy].rates, other.curves[policy].rates)
            assert one.curves[policy].first_slots == other.curves[policy].first_slots


def test_what_does_not_belong_is_refused_with_what_to_do(profile, tmp_path):
    path = tmp_path / "maths.npz"
    profile.save(path)
    with pytest.raises(ProfileError, match="made for another model") as caught:
        load_profile(path, ("model-2",))
    assert "moe-chat profile build" in caught.value.hint
    assert load_profile(path).model == "model-1"
    make_trace().save(path)
    with pytest.raises(ProfileError, match="but a moe-chat routing trace"):
        load_profile(path)
    path.write_bytes(b"PK\x03\x04 and nothing else")
    with pytest.raises(ProfileError, match="damaged"):
        load_profile(path)
    with pytest.raises(ProfileError, match="cannot be read"):
        load_profile(tmp_path / "absent.npz")


def test_rates_that_are_none_are_refused(profile, tmp_path):
    path = tmp_path / "maths.npz"
    first = profile.layers[0]
    for wrong in (
        replace(first, mean_scores=np.full(8, np.nan, np.float32)),
        replace(first, selections=np.zeros(7, np.int64)),
        replace(first, curves={p: replace(c, rates=c.rates + 1) for p, c in first.curves.items()}),
    ):
        replace(profile, layers=(wrong, profile.layers[1])).save(path)
        with pytest.raises(ProfileError, match="damaged"):
            load_profile(path)


def test_a_save_that_fails_leaves_the_old_profile(profile, tmp_path, monkeypatch):
    path = tmp_path / "maths.npz"
    profile.save(path)
    before = path.read_bytes()

    def full(*arguments, **arrays):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space"):
        profile.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_damaged_file_is_refused_or_read_but_never_crashes(profile, tmp_path_factory, data):
    path = tmp_path_factory.mktemp("t") / "it.npz"
    profile.save(path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content)
    with suppress(ProfileError):
        load_profile(path)
