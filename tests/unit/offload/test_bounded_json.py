"""JSON of others: what is read, what is refused, and that a refusal is short."""

from __future__ import annotations

import pytest

from offload.bounded_json import Limits, NotReadable, parse_json, parse_object, shown, told

LIMITS = Limits(max_bytes=1000, max_depth=3, max_values=20)


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b'{"a": [1, 2.5, null, true, "b"]}', {"a": [1, 2.5, None, True, "b"]}),
        (b"\xef\xbb\xbf[]", []),
        (b'"\\ud83d\\udc1d"', "\U0001f41d"),
        (b"1000000000000000019884624838656", 10**30 + 19884624838656),
        (b"[[[]]]", [[[]]]),
    ],
)
def test_what_is_read(content: bytes, value: object) -> None:
    assert parse_json(content, LIMITS) == value


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"a": 1} 2', "not valid JSON"),
        (b'"\xff"', "byte 1 is not UTF-8"),
        (b" " * 1001, "1001 bytes, where at most 1000"),
        (b"[" + b"1," * 21 + b"1]", "more than 20 values"),
        (b"[" * 11, "more than 20 values"),
        (b"[[[[]]]]", "nested more than 3 deep"),
        (b'{"a": {"b": {"c": {}}}}', "nested more than 3 deep"),
        (b'{"a": 1, "b": 2, "a": 1}', "the key 'a' is there twice"),
        (b'[{"b": 2, "b": 1}]', "the key 'b' is there twice"),
        (b"[NaN]", "holds NaN"),
        (b"[-Infinity]", "holds -Infinity"),
        (b"9" * 65, "a number of 65 digits"),
        (b'"\\udc80"', "lone surrogate"),
        (b'{"\\uD83D": 1}', "lone surrogate"),
    ],
)
def test_what_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(NotReadable, match=reason):
        parse_json(content, LIMITS)


def test_nesting_beyond_what_the_reader_itself_takes() -> None:
    with pytest.raises(NotReadable, match="nested"):
        parse_json(b"[" * 100_000, Limits())


def test_infinity_only_where_it_is_a_number() -> None:
    limits = Limits(has_infinity=True)
    assert parse_json(b"[0.0, Infinity, -Infinity]", limits) == [0.0, float("inf"), float("-inf")]
    with pytest.raises(NotReadable, match="NaN"):
        parse_json(b"NaN", limits)


@pytest.mark.parametrize(
    ("content", "kind"), [(b"[]", "a list"), (b"3", "a number"), (b"null", "null"), (b'"a"', "text")]
)
def test_an_object_is_asked_for(content: bytes, kind: str) -> None:
    with pytest.raises(NotReadable, match=f"it is {kind}, not a JSON object"):
        parse_object(content, LIMITS)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("x" * 5000, id="text"),
        pytest.param("\0" * 5000, id="zeros"),
        pytest.param(10**5000, id="number"),
        pytest.param(["x" * 5000] * 3, id="list of texts"),
        pytest.param({"x" * 5000: 1}, id="object"),
        pytest.param([0] * 5000, id="list"),
        pytest.param([[[1] * 50] * 50], id="lists"),
    ],
)
def test_a_long_value_is_shown_shortened(value: object) -> None:
    assert len(shown(value)) < 300


def test_a_short_value_is_shown_as_it_is() -> None:
    assert [shown(value) for value in ("a", -3, None, [1, 2])] == ["'a'", "-3", "None", "[1, 2]"]


def test_an_error_that_quotes_a_file_is_cut() -> None:
    assert told(ValueError("short")) == "short"
    assert len(told(TypeError("x" * 5000))) < 450
