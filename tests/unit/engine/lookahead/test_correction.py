"""The mean error of a prediction is learned and taken off, while that finds more experts."""

from __future__ import annotations

import torch

from engine.lookahead.correction import MeanErrorCorrection


def correction_of(num_experts: int, top_k: int) -> MeanErrorCorrection:
    return MeanErrorCorrection(lambda scores: scores.topk(top_k)[1][0].tolist())


def test_a_constant_error_of_the_prediction_is_learned_and_taken_off() -> None:
    correction, generator = correction_of(8, 2), torch.Generator().manual_seed(5)
    error = torch.tensor([[3.0, -2.0, 0.0, 0.0, 1.0, -1.0, 2.5, 0.0]])
    found = 0
    for _ in range(200):
        truth = torch.randn(1, 8, generator=generator)
        predicted = correction.correct(truth - error)
        found += set(predicted.topk(2)[1][0].tolist()) == set(truth.topk(2)[1][0].tolist())
        if correction.count_step():
            correction.learn(truth)
    assert correction.is_used
    assert found >= 180


def test_a_correction_that_finds_less_is_not_used() -> None:
    correction = correction_of(4, 1)
    for step in range(64):
        big = torch.full((1, 4), 0.0)
        big[0, step % 2] = 1.0  # the prediction is right; the error swings, and is largest where it does harm
        correction.correct(big)
        if correction.count_step():
            correction.learn(big * 3 + torch.tensor([[0.0, 0.0, 1.9, 0.0]]))
    assert not correction.is_used
    assert torch.equal(correction.correct(big), big)


def test_a_settled_correction_learns_from_each_eighth_step_and_forgets_the_others() -> None:
    correction, scores = correction_of(4, 1), torch.zeros(1, 4)
    due = []
    for _ in range(32):
        correction.correct(scores)
        due.append(correction.count_step())
        if due[-1]:
            correction.learn(scores)
    assert due == [True] * 16 + [False] * 7 + [True] + [False] * 7 + [True]
    assert not correction.count_step(), "nothing was predicted"
