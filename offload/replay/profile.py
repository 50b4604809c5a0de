"""Domain profiles: what a model's routers do on prompts of one kind. They warm-start the cache and plan its slots.

After "MoE-CORE: Coordinated Expert Offload", section "Mechanism": a cache starts with the K_l experts of the highest
mean router score on its domain's profiling set, and slots follow replayed hit-rate curves.

The file format (version 1) is that of `offload.archive`, named "moe-chat domain profile". Its header holds the
scalars of `DomainProfile` and `layers` (see `geometry_to_json`); its arrays are those of the layers, named
`mean_scores/0`, `selections/0`, `hit_rates/lru/0`, `hit_rates/history/0`, and so on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from offload.archive import geometry_from_json, geometry_to_json, number_of, read_archive, text_of, write_archive
from offload.bounded_json import told
from offload.errors import ProfileError
from offload.geometry import Geometry
from offload.policies.eviction.history import HistoryWeights
from offload.policies.slot_planning.curve import HitRateCurve
from offload.replay.history_sweep import LRU_WEIGHTS, Variant, sweep_loads
from offload.replay.trace import RoutingTrace

CURVE_POLICIES: Final = ("lru", "history")
"""The eviction policies a profile has curves of."""
_MAX_CURVE_POINTS = 32
"""The most slot counts replayed for a curve; those in between are interpolated linearly."""
_FORMAT = "moe-chat domain profile"
_VERSION = 1
_REMEDY = "Build the profile again: moe-chat profile build --domain NAME"


@dataclass(frozen=True, slots=True, eq=False)
class LayerProfile:
    """One layer's part of a profile."""

    mean_scores: np.ndarray
    """float32 [num_experts]: mean router score over all tokens; the share of tokens that chose the expert, where no
    scores were recorded."""
    selections: np.ndarray
    """int64 [num_experts]: tokens that chose the expert."""
    curves: dict[str, HitRateCurve]
    """By eviction policy, from k slots to all experts; each replay starts from `warmest` experts."""

    def warmest(self, num_slots: int) -> tuple[int, ...]:
        """The experts of the highest mean score, best first; among equals, the lower number."""
        order: list[int] = np.argsort(-self.mean_scores.astype(np.float64), kind="stable").tolist()
        return tuple(order[:num_slots])


@dataclass(frozen=True, slots=True, eq=False)
class DomainProfile:
    """The profile of a (model, domain)."""

    model: str
    """Fingerprint of the model."""
    domain: str
    created_s: float
    """When, in seconds since 1970."""
    num_prompts: int
    num_tok: int
    """Tokens the means are over: prompts and answers."""
    num_decode_tok: int
    """Tokens the curves are over: answers only."""
    geometry: Geometry
    layers: tuple[LayerProfile, ...]

    def warm_start(self, slots_per_layer: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Per layer, the experts to begin with: as many as it has slots, those of the highest mean score, best first.

        Raises ProfileError when the profile has another number of layers.
        """
        self._require_layers(len(slots_per_layer))
        return tuple(layer.warmest(slots) for layer, slots in zip(self.layers, slots_per_layer, strict=True))

    def curves(self, policy: str = "history") -> tuple[HitRateCurve, ...]:
        """Per layer, the hit-rate curve under a policy of CURVE_POLICIES. Raises KeyError for another."""
        return tuple(layer.curves[policy] for layer in self.layers)

    def expected_hit_rate(self, slots_per_layer: Sequence[int], policy: str = "history") -> float | None:
        """Hits over routed, summed over layers, by the curves; None when the profile has seen no answers."""
        self._require_layers(len(slots_per_layer))
        if not self.num_decode_tok:
            return None
        top_k = [layer.top_k for layer in self.geometry.layers]
        rates = [curve.at(slots) for curve, slots in zip(self.curves(policy), slots_per_layer, strict=True)]
        return sum(k * rate for k, rate in zip(top_k, rates, strict=True)) / sum(top_k)

    def _require_layers(self, num_layers: int) -> None:
        if num_layers != len(self.layers):
            raise ProfileError(f"The profile has {len(self.layers)} layers, and the model {num_layers}.", _REMEDY)

    def save(self, path: Path) -> None:
        """Write the profile, atomically. Raises OSError."""
        names = ("model", "domain", "created_s", "num_prompts", "num_tok", "num_decode_tok")
        header = {name: getattr(self, name) for name in names} | {"layers": geometry_to_json(self.geometry)}
        arrays: dict[str, np.ndarray] = {}
        for number, layer in enumerate(self.layers):
            arrays[f"mean_scores/{number}"] = layer.mean_scores
            arrays[f"selections/{number}"] = layer.selections
            for policy, curve in layer.curves.items():
                arrays[f"hit_rates/{policy}/{number}"] = curve.rates
        write_archive(path, _FORMAT, _VERSION, header, arrays)


def build_profile(
    trace: RoutingTrace, *, created_s: float, domain: str | None = None, weights: HistoryWeights | None = None
) -> DomainProfile:
    """The profile of what a trace recorded. `domain`: by default the trace's. `weights`: of the history curve.

    Raises ProfileError when the trace is empty.
    """
    if not trace.num_steps:
        raise ProfileError("There is no routing to build a profile from.", "Give at least one prompt.")
    mask = trace.selection_mask()
    selections = mask.sum(axis=0)
    means = _mean_scores(trace, selections)
    warm_order = np.argsort(-means, axis=1, kind="stable")
    rates = _hit_rates(trace, warm_order, weights or HistoryWeights())
    layers = []
    for number, shape in enumerate(trace.geometry.layers):
        curves = {policy: HitRateCurve(shape.top_k, rates[policy][number]) for policy in CURVE_POLICIES}
        experts = slice(shape.num_experts)
        layers.append(LayerProfile(means[number, experts], selections[number, experts], curves))
    return DomainProfile(
        model=trace.model,
        domain=trace.domain if domain is None else domain,
        created_s=created_s,
        num_prompts=trace.num_prompts,
        num_tok=trace.num_steps,
        num_decode_tok=int((~trace.is_prefill).sum()),
        geometry=trace.geometry,
        layers=tuple(layers),
    )


def _mean_scores(trace: RoutingTrace, selections: np.ndarray) -> np.ndarray:
    """float32 [layers, experts]; -inf where there is no expert. Scores that are not finite are left out."""
    shares = (selections / trace.num_steps).astype(np.float32)
    if trace.scores is not None:
        totals = np.zeros(selections.shape)
        counts = np.zeros(selections.shape)
        for rows in np.array_split(trace.scores, -(-trace.num_steps // 256)):
            finite = np.isfinite(rows)
            totals += np.where(finite, rows, 0).sum(axis=0, dtype=np.float64)
            counts += finite.sum(axis=0)
        has_scores = counts.any(axis=1, keepdims=True)
        means = np.where(counts > 0, totals / np.maximum(counts, 1), -np.inf)
        shares = np.where(has_scores, means, shares).astype(np.float32)
    num_experts = np.array([layer.num_experts for layer in trace.geometry.layers])[:, None]
    absent = np.arange(selections.shape[1]) >= num_experts
    return np.where(absent, np.float32(-np.inf), shares)


def _hit_rates(trace: RoutingTrace, warm_order: np.ndarray, weights: HistoryWeights) -> dict[str, list[np.ndarray]]:
    """By policy, per layer: float64 [num_experts - k + 1]. All policies and slot counts are one sweep."""
    layers = trace.geometry.layers
    num_points = min(_MAX_CURVE_POINTS, max(at.num_experts - at.top_k for at in layers) + 1)
    counts = [np.rint(np.linspace(at.top_k, at.num_experts, num_points)).astype(np.int64).tolist() for at in layers]
    variants = []
    for policy_weights in (LRU_WEIGHTS, weights):
        for slots in zip(*counts, strict=True):
            start = [order[:n] for order, n in zip(warm_order.tolist(), slots, strict=True)]
            variants.append(Variant(policy_weights, slots, start))
    decode = trace.decode_only()
    routed = np.maximum(decode.selection_mask().sum(axis=(0, 2)), 1)
    rates = (1.0 - sweep_loads(decode, variants) / routed).reshape(len(CURVE_POLICIES), num_points, len(layers))
    return {
        policy: [
            np.interp(np.arange(at.top_k, at.num_experts + 1), counts[number], rates[index, :, number])
            for number, at in enumerate(layers)
        ]
        for index, policy in enumerate(CURVE_POLICIES)
    }


def load_profile(path: Path, models: Collection[str] | None = None) -> DomainProfile:
    """Read a profile. `models`: the fingerprints of which one must be that of its model; None takes any.

    Raises ProfileError when the file is missing, damaged, something else, or another model's.
    """
    header, arrays = read_archive(path, _FORMAT, _VERSION, ProfileError, _REMEDY)
    try:
        geometry = geometry_from_json(header["layers"])
        layers = tuple(_layer_from(arrays, number, geometry) for number in range(geometry.num_layers))
        profile = DomainProfile(
            model=text_of(header, "model"),
            domain=text_of(header, "domain"),
            created_s=float(number_of(header, "created_s")),
            num_prompts=int(number_of(header, "num_prompts")),
            num_tok=int(number_of(header, "num_tok")),
            num_decode_tok=int(number_of(header, "num_decode_tok")),
            geometry=geometry,
            layers=layers,
        )
    except KeyError as failure:
        raise ProfileError(f"{path} is damaged: it lacks {told(failure)}.", _REMEDY) from failure
    except (TypeError, ValueError) as failure:
        raise ProfileError(f"{path} is damaged: {told(failure)}.", _REMEDY) from failure
    if models is not None and profile.model not in models:
        raise ProfileError(
            f"The profile of {profile.domain!r} in {path} was made for another model, whose routers are others.",
            f"{_REMEDY}, with the model that is loaded.",
        )
    return profile


def _layer_from(arrays: dict[str, np.ndarray], number: int, geometry: Geometry) -> LayerProfile:
    """Raises KeyError or ValueError for arrays that do not fit the layer."""
    shape = geometry.layers[number]
    means, selections = arrays[f"mean_scores/{number}"], arrays[f"selections/{number}"]
    rates = {policy: arrays[f"hit_rates/{policy}/{number}"] for policy in CURVE_POLICIES}
    found = [(a.dtype, a.shape) for a in (means, selections, *rates.values())]
    num_counts = shape.num_experts - shape.top_k + 1
    curve_type = (np.dtype(np.float64), (num_counts,))
    per_expert = [(np.dtype(kind), (shape.num_experts,)) for kind in (np.float32, np.int64)]
    if found != [*per_expert, curve_type, curve_type]:
        raise ValueError(f"the arrays of layer {number} do not fit its {shape.num_experts} experts")
    if np.isnan(means).any() or not all(((curve >= 0) & (curve <= 1)).all() for curve in rates.values()):
        raise ValueError(f"layer {number} has values that are no scores or no rates")
    return LayerProfile(means, selections, {name: HitRateCurve(shape.top_k, curve) for name, curve in rates.items()})
