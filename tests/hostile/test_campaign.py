"""Damaged model folders, and files that are kept of models: an answer, or an error with file and hint; in time, and
within memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hostile.campaign import Campaign, Result, campaign, summary
from tests.hostile.mutations import AS_IT_IS, CODE, Case, make_cases
from tests.hostile.templates import ENDLESS

NUM_SAMPLE = 48
NUM_ALL = 1280


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


def test_code_that_a_folder_brings_is_never_run(damaged: Campaign) -> None:
    pickled, own = CODE
    check(damaged.run([Case(0, "single", "pytorch_model.bin", pickled), Case(0, "single", "config.json", own)], 1))


@pytest.mark.long
def test_templates_without_end(damaged: Campaign) -> None:
    cases = [Case(number, "single", "chat_template.jinja", "endless template") for number in range(len(ENDLESS))]
    check(damaged.run(cases, 1))


def test_sound_files_are_used(damaged: Campaign) -> None:
    """So that a refusal of a damaged one is about the damage."""
    for base, file in (
        ("single", "config.json"),
        ("sharded", "config.json"),
        ("files", "trace.npz"),
        ("files", "profile.npz"),
        ("files", "eviction.json"),
        ("files", "prompts.jsonl"),
        ("files", "activations.requests"),
        ("files", "maths.predictor.safetensors"),
    ):
        (result,) = damaged.run([Case(0, base, file, AS_IT_IS)])
        assert (result.kind, result.said["message"]) == ("answered", "")


def test_a_case_is_the_same_whenever_it_is_made() -> None:
    assert make_cases(100)[:50] == make_cases(50)
    assert len({(case.file, case.how) for case in make_cases(NUM_ALL)}) > 150
