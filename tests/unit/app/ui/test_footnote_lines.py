"""Where a footnote is broken into rows."""

from __future__ import annotations

import pytest
from textual.geometry import Size

from app.ui.widgets.footnote_lines import FootnoteLines

_RECORD = "26 tok · TTFT 298 ms · 77 ms/tok · 13.1 tok/s · hit 96 % (1442 of 1500) · exact"


@pytest.mark.parametrize("width", range(18, 90))
def test_no_figure_is_parted_from_its_unit_or_its_whole(width: int) -> None:
    rows = FootnoteLines(_RECORD).rows(width)
    assert " ".join(rows) == _RECORD
    assert all(len(row) <= width for row in rows)
    for row in rows[1:]:
        assert not row.startswith(("tok", "ms", "%", "of", "·"))


def test_its_height_is_that_of_its_rows() -> None:
    size = Size(40, 20)
    assert FootnoteLines(_RECORD).get_content_height(size, size, 40) == 3
    assert FootnoteLines("one\ntwo").get_content_height(size, size, 40) == 2
