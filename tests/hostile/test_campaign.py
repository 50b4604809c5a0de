"""Damaged model folders, traces and profiles: an answer, or an error with file and hint; in time, and within memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hostile.campaign import Campaign, Result, campaign, summary
from tests.hostile.mutations import AS_IT_IS, Case, make_cases

NUM_SAMPLE = 75
NUM_ALL = 1500


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    """The worker; it starts once for all tests here."""
    with campaign(tmp_path_factory.mktemp("hostile")) as running:
        yield running


def check(results: list[Result]) -> None:
    print(f"\n{summary(results)}")
    problems = [str(result) for result in results if result.problem]
    assert not problems, "\n".join(problems)


def test_a_sample_of_cases(damaged: Campaign) -> None:
    check(damaged.run(make_cases(NUM_SAMPLE), asks_every=5))


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_all_cases(damaged: Campaign) -> None:
    check(damaged.run(make_cases(NUM_ALL)))


def test_sound_files_are_used(damaged: Campaign) -> None:
    """So that a refusal of a damaged one is about the damage."""
    for base, file in (
        ("single", "config.json"),
        ("sharded", "config.json"),
        ("files", "trace.npz"),
        ("files", "profile.npz"),
        ("files", "eviction.json"),
        ("files", "prompts.jsonl"),
    ):
        (result,) = damaged.run([Case(0, base, file, AS_IT_IS)])
        assert (result.kind, result.said["message"]) == ("answered", "")


def test_a_case_is_the_same_whenever_it_is_made() -> None:
    assert make_cases(100)[:50] == make_cases(50)
    assert len({(case.file, case.how) for case in make_cases(NUM_ALL)}) > 150
