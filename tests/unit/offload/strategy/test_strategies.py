"""Strategies are bundles of names; nothing outside a strategy's own file may ask which one it is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.errors import ConfigError
from offload.geometry import Geometry, LayerGeometry
from offload.policies.eviction import EVICTION_POLICIES, make_eviction
from offload.policies.inputs import PolicyInputs
from offload.policies.prefetch import PREFETCHERS, make_prefetcher
from offload.policies.slot_planning.device_cache import SLOT_PLANS
from offload.policies.substitution import SUBSTITUTION_NAMES
from offload.slot_groups import SlotGroups
from offload.strategy import STRATEGIES, strategy_named
from offload.strategy.bundle import PREFILL_PATHS

ROOT = Path(__file__).parents[4]
GEOMETRY = Geometry(tuple(LayerGeometry(i, 16, 2, 64) for i in range(4)))
OWN_NAMES = set(STRATEGIES) - {"lru", "lfu"}
"""`lru` and `lfu` are eviction policies too."""


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_bundle_names_what_there_is(name: str) -> None:
    strategy = strategy_named(name)
    assert strategy.name == name
    assert strategy.meaning
    assert strategy.prefill in PREFILL_PATHS
    assert strategy.slots in SLOT_PLANS
    assert strategy.eviction in EVICTION_POLICIES
    assert strategy.prefetch in PREFETCHERS
    assert strategy.substitution in SUBSTITUTION_NAMES
    inputs = PolicyInputs(GEOMETRY)
    make_eviction(strategy.eviction, inputs)
    make_prefetcher(strategy.prefetch, inputs)


def test_options_replace_parts_of_a_strategy() -> None:
    config = EngineConfig(strategy="moe-infinity", eviction="lru")
    assert (config.policies.eviction, config.policies.prefetch) == ("lru", "activation")
    assert config.policies.changes(strategy_named("moe-infinity")) == ("eviction lru",)
    with pytest.raises(ConfigError, match="Unknown strategy 'clock'"):
        EngineConfig(strategy="clock")
    with pytest.raises(ValueError, match="choose one of moe-core"):
        strategy_named("clock")


@pytest.mark.parametrize(
    ("name", "slots"),
    [
        ("moe-core", (5, 5, 5, 5)),
        ("moe-infinity", (20,)),
        ("duoserve", (4,)),
        ("no-cache", (2,)),
        ("lfu", (5, 5, 5, 5)),
    ],
)
def test_slots_within_a_budget(name: str, slots: tuple[int, ...]) -> None:
    cache = strategy_named(name).cache
    spare = sum(slots) * 4096 - cache.fewest(GEOMETRY).num_slots * 4096
    assert cache.spread(GEOMETRY, max(spare, 0)).slots == slots


def test_a_pool_is_counted_once_and_its_experts_can_be_absent() -> None:
    layers = (LayerGeometry(0, 4, 2, 64), LayerGeometry(1, 16, 2, 5000))
    pool = SlotGroups.pool(12, 2)
    assert pool.shares == (6, 6)
    assert pool.can_be_absent(Geometry(layers)) == (True, True), "though the first layer's share holds all of it"
    assert SlotGroups.per_layer((4, 6)).can_be_absent(Geometry(layers)) == (False, True)
    assert pool.slot_bytes(Geometry(layers)) == (5000,)
    assert pool.total_bytes(Geometry(layers)) == 12 * 8192 + 4096
    with pytest.raises(ValueError, match="groups"):
        SlotGroups((3,), (0, 1))


def test_nothing_asks_for_a_strategys_name_outside_its_own_file() -> None:
    """No comparison with a name, no `in` a collection of names, no `match` on one."""
    offenders = []
    for path in (path for room in ("app", "engine", "offload") for path in (ROOT / room).rglob("*.py")):
        if path.parent == ROOT / "offload" / "strategy":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare | ast.MatchValue):
                words = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
                if words & OWN_NAMES:
                    offenders.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not offenders, offenders
