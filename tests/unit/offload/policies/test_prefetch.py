"""Prefetchers."""

import pytest

from offload.policies.prefetch import PREFETCHERS, Forecast, Outlook, make_prefetcher
from offload.policies.prefetch.expected_gain import GainModel
from offload.policies.prefetch.layers_ahead_gain import LayersAheadGainPrefetcher
from offload.policies.prefetch.overlap_window import Window
from offload.policies.prefetch.rank_hit_rates import RankHitRates
from offload.policies.prefetch.router_ahead_gain import RouterAheadGainPrefetcher


def plan(prefetcher, predicted, absent, window=None, layer=1):
    """The experts planned for the next layer alone."""
    planned = prefetcher.plan(Outlook([Forecast(layer, predicted, absent)], window))
    assert all(where == layer for where, _ in planned)
    return [expert for _, expert in planned]


def forecasts(*rankings, absent=lambda expert: True):
    return [Forecast(layer, ranking, absent) for layer, ranking in enumerate(rankings, start=1)]


@pytest.mark.parametrize(
    ("depth", "absent", "expected"),
    [
        (1, {3, 5, 7}, [3]),
        (2, {5, 7}, [5, 7]),
        (2, {7, 3}, [3, 7]),
        (9, {5}, [5]),
        (2, set(), []),
        (0, {3, 5}, []),
    ],
)
def test_router_ahead_takes_the_best_ranked_absent_ones(depth, absent, expected):
    assert plan(make_prefetcher("router-ahead", depth), [3, 5, 1, 7], absent.__contains__) == expected


def test_a_prediction_is_asked_for_only_where_it_is_used():
    assert make_prefetcher("router-ahead", 1).num_layers_ahead == 1
    assert make_prefetcher("layers-ahead", 1).num_layers_ahead == 2
    assert make_prefetcher("router-ahead", 0).num_layers_ahead == 0
    assert make_prefetcher("layers-ahead", 0).num_layers_ahead == 0
    assert make_prefetcher("none", 1).num_layers_ahead == 0


def test_none_fetches_nothing():
    assert plan(make_prefetcher("none", 4), [1, 2], lambda expert: True) == []


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="'oracle': choose one of layers-ahead, router-ahead"):
        make_prefetcher("oracle", 1)
    with pytest.raises(ValueError, match="depth is -1"):
        make_prefetcher("router-ahead", -1)


ADAPTIVE = ("router-ahead-floor", "router-ahead-gain", "layers-ahead-gain")


def window(known_s, copy_s=1.0, demand_queued_s=0.0, prefetch_queued_s=0.0):
    known_s = known_s if isinstance(known_s, tuple) else (known_s,)
    return Window(known_s[0], known_s, (copy_s,) * len(known_s), demand_queued_s, prefetch_queued_s)


@pytest.mark.parametrize("name", ADAPTIVE)
def test_without_a_window_the_depth_counts(name):
    prefetcher = make_prefetcher(name, 2)
    assert prefetcher.num_layers_ahead >= 1
    assert prefetcher.needs_window
    assert plan(prefetcher, [3, 5, 1, 7], {5, 1, 7}.__contains__) == [5, 1]
    with pytest.raises(ValueError, match="depth is -1"):
        make_prefetcher(name, -1)


@pytest.mark.parametrize("name", PREFETCHERS)
def test_everyone_takes_a_window_and_what_came_of_it(name):
    prefetcher = make_prefetcher(name, 1)
    for known_s in (0.0, 0.5, 2.5, 100.0):
        prefetcher.observe(3, [1, 2])
        planned = plan(prefetcher, [3, 5, 1, 7], {3, 5, 7}.__contains__, window(known_s), 3)
        assert planned == [3, 5, 7][: len(planned)]


@pytest.mark.parametrize(
    ("known_s", "demand_s", "expected"),
    [(0.9, 0, []), (1.0, 0, [3]), (2.9, 0, [3, 5]), (2.9, 1, [3]), (9, 0, [3, 5, 7])],
)
def test_floor_takes_what_is_hidden_altogether(known_s, demand_s, expected):
    prefetcher = make_prefetcher("router-ahead-floor", 9)
    assert plan(prefetcher, [3, 5, 1, 7], {3, 5, 7}.__contains__, window(known_s, 1.0, demand_s)) == expected


@pytest.mark.parametrize(
    ("probability", "start_s", "known_s", "expected"),
    [
        (1.0, 0.0, (1.0,), 1.0),
        (1.0, 0.0, (0.5,), 0.5),
        (1.0, 0.5, (1.0,), 0.5),
        (1.0, 1.0, (1.0,), 0.0),
        (0.5, 3.0, (1.0,), 0.0),
        (0.0, 0.0, (1.0,), -0.1),
        (0.0, 0.0, (0.75,), -0.1 - 0.5 * 0.25),
        (0.5, 0.0, (0.75,), 0.375 - 0.5 * (0.1 + 0.5 * 0.25)),
        (1.0, 0.0, (0.25, 9.0), 1.0 - 0.5 * 0.75),
        (1.0, 0.5, (0.25, 9.0), 1.0),
        (1.0, 0.0, (0.25, 0.5, 9.0), 1.0 - 0.5 * (0.75 + 0.5)),
        (0.0, 0.0, (0.25, 0.5), -0.5 * (0.75 + 0.5) - 0.1),
    ],
)
def test_what_a_copy_of_a_second_gains(probability, start_s, known_s, expected):
    model = GainModel(demand_probability=0.5, victim_loads=0.1)
    assert model.net_gain_s(probability, start_s, 1.0, known_s) == pytest.approx(expected)


@pytest.mark.parametrize("wrong", [{"demand_probability": 1.1}, {"demand_probability": -0.1}, {"victim_loads": -1.0}])
def test_impossible_prices_are_refused(wrong):
    with pytest.raises(ValueError, match="impossible"):
        GainModel(**wrong)


def test_gain_takes_a_copy_hidden_by_half_where_floor_takes_none():
    assert plan(make_prefetcher("router-ahead-floor", 1), [3], lambda expert: True, window(0.6)) == []
    assert plan(make_prefetcher("router-ahead-gain", 1), [3], lambda expert: True, window(0.6)) == [3]
    assert plan(make_prefetcher("router-ahead-gain", 1), [3], lambda expert: True, window(0.1)) == []


def test_gain_learns_which_places_of_a_prediction_are_worth_it():
    prefetcher = RouterAheadGainPrefetcher(1)
    for step in range(300):
        plan(prefetcher, [0, 1, 2, 3], {0, 1, 2, 3}.__contains__, window(9.0), 5)
        prefetcher.observe(5, [0, 1 + step % 20])
    assert plan(prefetcher, [0, 1, 2, 3], {0, 1, 2, 3}.__contains__, window(9.0), 5) == [0]
    later = plan(prefetcher, [9, 1, 2, 3], {1, 2, 3}.__contains__, window(9.0), 5)
    assert later == [], "only the first place was right"


def test_hit_rates_start_from_a_guess_and_end_at_what_was_seen():
    rates = RankHitRates(2, 3)
    assert rates.rate(1, 0) == pytest.approx(0.7)
    assert rates.rate(2, 1) == pytest.approx(0.7 * 0.85**2)
    assert rates.rate(1, 99) == rates.rate(1, 2)
    for _ in range(1000):
        rates.expect(4, 2, [(0, 7), (2, 8), (5, 9)])
        rates.observe(3, [7, 8])
        rates.observe(4, [8])
    assert rates.rate(2, 0) < 0.01
    assert rates.rate(2, 2) > 0.99
    assert rates.rate(1, 0) == pytest.approx(0.7)


def test_a_prediction_never_judged_is_forgotten():
    rates = RankHitRates()
    for _ in range(10):
        rates.expect(0, 1, [(0, 7)])
    rates.observe(0, [7])
    rates.observe(0, [7])
    assert rates.rate(1, 0) == pytest.approx((8 * 0.7 + 1) / 9)


def test_looking_further_takes_the_nearest_first_and_then_what_has_time():
    prefetcher = make_prefetcher("layers-ahead-gain", 1)
    assert prefetcher.num_layers_ahead == 2
    slow = window((0.7, 1.4, 2.1, 2.8))
    planned = LayersAheadGainPrefetcher(1, GainModel(0.5, 0.1), 4).plan(
        Outlook(forecasts([1, 2], [3, 4], [5], [6]), slow)
    )
    assert planned == [(1, 1), (2, 3)], "3 would be hidden by 0.1 s only, and 6 would be in layer 3's way"


def test_looking_further_reckons_with_what_is_queued():
    ahead = LayersAheadGainPrefetcher(1, GainModel(0.0, 0.0), 4)
    known_s = (1.0, 2.0, 3.0)
    assert ahead.plan(Outlook(forecasts([1], [2], [3]), window(known_s))) == [(1, 1), (2, 2), (3, 3)]
    assert ahead.plan(Outlook(forecasts([1], [2], [3]), window(known_s, 1.0, 1.0))) == [(2, 2), (3, 3)]
    assert ahead.plan(Outlook(forecasts([1], [2], [3]), window(known_s, 1.0, 1.0, 1.0))) == [(3, 3)]


def test_looking_further_stops_where_nothing_is_known():
    ahead = LayersAheadGainPrefetcher(1, num_layers_ahead=2)
    assert ahead.plan(Outlook(forecasts([], [], [9]), window((1.0, 2.0, 3.0)))) == []
    assert ahead.plan(Outlook(forecasts([1], [2]), window(9.0))) == [(1, 1)], "the window covers one layer"
    assert ahead.plan(Outlook(forecasts([1], [2]), None)) == [(1, 1)], "no window: the depth, for the next layer"
    with pytest.raises(ValueError, match="0 layers ahead"):
        LayersAheadGainPrefetcher(1, num_layers_ahead=0)


def test_the_layer_after_next_is_looked_at_only_while_fewer_are_missing_nearer():
    asked = []

    def forecast(layer, absent):
        asked.append(layer)
        return Forecast(layer, [3, 5], absent.__contains__)

    def lazily(*absent):
        return (forecast(layer, these) for layer, these in enumerate(absent, start=1))

    ahead = make_prefetcher("layers-ahead", 1)
    assert ahead.plan(Outlook(lazily({5}, {3}))) == [(1, 5)]
    assert asked == [1], "a forecast that is not needed is not made"
    assert ahead.plan(Outlook(lazily(set(), {5}))) == [(2, 5)]
    assert make_prefetcher("layers-ahead", 2).plan(Outlook(lazily({5}, {3, 5}))) == [(1, 5), (2, 3)]
    assert make_prefetcher("router-ahead", 1).plan(Outlook(lazily(set()))) == []
