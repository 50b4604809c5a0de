"""Prompts to build profiles from: those shipped, and the shapes in which users bring theirs."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest

from app.domains.domain import all_domains
from engine.errors import ConfigError
from engine.profiles.prompt_sets import SHAPES, read_prompts, shipped_domains, shipped_prompts

DOMAINS = [domain.name for domain in all_domains()]


def jsonl(folder: Path, *entries: object, name: str = "prompts.jsonl") -> Path:
    """A file with one entry a line; text is written as it is."""
    lines = [entry if isinstance(entry, str) else json.dumps(entry) for entry in entries]
    path = folder / name
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def refusal(path: Path, limit: int | None = None) -> ConfigError:
    """The error that reading the file ends with."""
    with pytest.raises(ConfigError) as caught:
        read_prompts(path, limit)
    return caught.value


def test_every_domain_has_prompts_and_the_other_way_round() -> None:
    assert sorted(DOMAINS) == list(shipped_domains())


@pytest.mark.parametrize("domain", DOMAINS)
def test_shipped_prompts_are_many_and_different(domain: str) -> None:
    prompts = shipped_prompts(domain)
    assert len(prompts) >= 40
    assert len({" ".join(prompt.lower().split()) for prompt in prompts}) == len(prompts)
    assert all(prompt == prompt.strip() for prompt in prompts)


def test_no_prompt_serves_two_domains() -> None:
    prompts = [prompt for domain in DOMAINS for prompt in shipped_prompts(domain)]
    assert len(set(prompts)) == len(prompts)


def test_long_documents_are_long_and_end_with_a_task() -> None:
    for prompt in shipped_prompts("documents"):
        assert 250 <= len(prompt.split()) <= 600
        text, task = prompt.rsplit("\n\n", 1)
        assert len(text.split()) >= 250
        assert 5 <= len(task.split()) <= 60


def test_shipped_lines_hold_a_prompt_and_nothing_else() -> None:
    for domain in DOMAINS:
        lines = files("assets.prompts").joinpath(f"{domain}.jsonl").read_text(encoding="utf-8").splitlines()
        assert all(set(json.loads(line)) == {"prompt"} for line in lines)


def test_what_is_returned_can_be_changed_without_harm() -> None:
    shipped_prompts("maths").clear()
    assert shipped_prompts("maths")


@pytest.mark.parametrize("domain", ["astrology", "", "../domains/maths", "maths.jsonl"])
def test_unknown_domain(domain: str) -> None:
    with pytest.raises(ConfigError) as caught:
        shipped_prompts(domain)
    assert repr(domain) in caught.value.message
    assert all(name in caught.value.hint for name in DOMAINS)


@pytest.mark.parametrize(
    ("entry", "prompt"),
    [
        pytest.param({"prompt": "Why?"}, "Why?", id="prompt"),
        pytest.param({"question": "How many?", "answer": "So: 5\n#### 5"}, "How many?", id="gsm8k"),
        pytest.param(
            {
                "task_id": "T/0",
                "prompt": "\ndef f(x):\n",
                "canonical_solution": "    return x\n",
                "test": "",
                "entry_point": "f",
            },
            "\ndef f(x):\n",
            id="humaneval",
        ),
        pytest.param(
            {"question": "Which?", "subject": "birds", "choices": ["wren", "owl", "kite", "tern"], "answer": 2},
            "Which?\n\nA. wren\nB. owl\nC. kite\nD. tern",
            id="mmlu",
        ),
        pytest.param({"text": "Tell me a story."}, "Tell me a story.", id="text"),
        pytest.param(
            {
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "First?"},
                    {"role": "assistant", "content": "Yes."},
                    {"role": "user", "content": "And then?"},
                    {"role": "assistant", "content": "No."},
                ]
            },
            "And then?",
            id="messages",
        ),
        pytest.param(
            {"instruction": "Shorten it.", "input": "A long text."}, "Shorten it.\n\nA long text.", id="input"
        ),
        pytest.param({"instruction": "Sing.", "input": "", "output": "La."}, "Sing.", id="input-empty"),
        pytest.param({"instruction": "Sing.", "input": None}, "Sing.", id="input-null"),
        pytest.param({"instruction": "Sing."}, "Sing.", id="no-input"),
        pytest.param({"text": "the answer", "prompt": "the question"}, "the question", id="first-shape-wins"),
        pytest.param({"prompt": "one\u2028line, ½ ü 🐝"}, "one\u2028line, ½ ü 🐝", id="unicode"),
    ],
)
def test_each_shape(tmp_path: Path, entry: object, prompt: str) -> None:
    line = json.dumps(entry, ensure_ascii=False)
    assert read_prompts(jsonl(tmp_path, line), None) == [prompt]
    assert read_prompts(jsonl(tmp_path, json.dumps(entry)), None) == [prompt]


def test_shapes_may_be_mixed_and_empty_lines_are_skipped(tmp_path: Path) -> None:
    path = jsonl(tmp_path, "", {"prompt": "one"}, "   ", {"text": "two"}, "")
    assert read_prompts(path, None) == ["one", "two"]


def test_windows_files(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "one"}\r\n{"prompt": "two"}')
    assert read_prompts(path, None) == ["one", "two"]


def test_plain_text_is_one_prompt_a_line(tmp_path: Path) -> None:
    path = jsonl(tmp_path, "What is a heron?", "", '  {"prompt": "kept as it is"} ', name="mine.TXT")
    assert read_prompts(path, None) == ["What is a heron?", '{"prompt": "kept as it is"}']


def test_limit(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"prompt": "one"}, {"prompt": "two"}, "broken")
    assert read_prompts(path, 1) == ["one"]
    assert read_prompts(path, 2) == ["one", "two"]
    assert "line 3" in refusal(path, 3).message
    for limit in (0, -1):
        assert str(limit) in refusal(path, limit).message


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        pytest.param("Why?", "not JSON", id="plain"),
        pytest.param('{"prompt": "cut', "not JSON", id="cut"),
        pytest.param("[" * 100_000, "not JSON", id="deep"),
        pytest.param('{"prompt": ' + "9" * 5000 + "}", "not JSON", id="huge-number"),
        pytest.param('["Why?"]', "not an object", id="list"),
        pytest.param('"Why?"', "not an object", id="string"),
        pytest.param('{"query": "Why?", "id": 7}', "no shape fits its keys ('query', 'id')", id="keys"),
        pytest.param("{}", "no shape fits its keys (none)", id="no-keys"),
        pytest.param('{"prompt": 7}', "'prompt' is not text", id="number"),
        pytest.param('{"prompt": null}', "'prompt' is not text", id="null"),
        pytest.param('{"prompt": "  "}', "'prompt' is blank", id="blank"),
        pytest.param('{"text": "a \\ud83d b"}', "lone surrogate", id="surrogate"),
        pytest.param('{"question": "Which?", "choices": "ABCD"}', "'choices' is not a list", id="choices"),
        pytest.param('{"question": "Which?", "choices": []}', "'choices' is not a list", id="no-choices"),
        pytest.param(json.dumps({"question": "Which?", "choices": ["a"] * 27}), "of 1 to 26", id="many-choices"),
        pytest.param('{"question": "Which?", "choices": ["a", 2]}', "choice B is not text", id="choice"),
        pytest.param('{"question": "", "choices": ["a", "b"]}', "'question' is blank", id="question"),
        pytest.param('{"instruction": "Sing.", "input": 4}', "'input' is not text", id="input"),
        pytest.param('{"messages": "hello"}', "not a list of objects", id="messages"),
        pytest.param('{"messages": ["hello"]}', "not a list of objects", id="message"),
        pytest.param('{"messages": []}', "no message whose role is 'user'", id="no-messages"),
        pytest.param('{"messages": [{"role": "system", "content": "x"}]}', "role is 'user'", id="no-user"),
        pytest.param('{"messages": [{"role": "user"}]}', "the last user message is not text", id="no-content"),
    ],
)
def test_what_is_no_prompt_is_refused(tmp_path: Path, line: str, reason: str) -> None:
    path = jsonl(tmp_path, {"prompt": "sound"}, "", line)
    error = refusal(path)
    assert f"{path}, line 3: " in error.message
    assert reason in error.message
    assert len(error.message) < len(str(path)) + 200
    assert all(shape in error.hint for shape in SHAPES)


@pytest.mark.parametrize("content", [b"", b"\n \n\r\n", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("name", ["empty.jsonl", "empty.txt"])
def test_an_empty_file_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    error = refusal(path)
    assert str(path) in error.message
    assert "no prompts" in error.message
    assert all(shape in error.hint for shape in SHAPES)


@pytest.mark.parametrize("name", ["latin.jsonl", "latin.txt"])
def test_bytes_that_are_not_text_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b'{"prompt": "tea"}\n{"prompt": "caf\xe9"}\n')
    error = refusal(path)
    assert f"{path}, line 2: byte 0xe9 is not UTF-8" in error.message
    assert "UTF-8" in error.hint


def test_utf_16_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wide.jsonl"
    path.write_text('{"prompt": "tea"}\n', encoding="utf-16")
    assert "line 1: byte 0xff is not UTF-8" in refusal(path).message


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere.jsonl"
    assert f"{missing} cannot be read: No such file" in refusal(missing).message
    assert f"{tmp_path} cannot be read" in refusal(tmp_path).message
