"""The answer that is being written, looking as it will when it is finished."""

from __future__ import annotations

from itertools import zip_longest

from markdown_it.token import Token
from textual.geometry import Region
from textual.strip import Strip

from app.ui.markdown_style import FinishedMarkdown, parser
from app.ui.widgets.text_lines import TextLines


class LiveAnswer(TextLines):
    """Grows at its end. Only the last block of its Markdown is laid out anew; what changed of it is drawn anew."""

    def __init__(self, markdown: str) -> None:
        super().__init__()
        self._settled: list[list[Token]] = []
        """Blocks that will not change any more, in batches as they were settled."""
        self._settled_strips: list[Strip] = []
        self._settled_at = (0, 0)
        """For which width, and for how many batches, those strips were made, with the blank lines below each."""
        self._open = ""
        self._open_tokens: list[Token] = []
        self._take(markdown)

    def grow(self, added: str) -> None:
        """The answer has more Markdown at its end."""
        self._take(added)
        before, width = self._strips, self.content_size.width
        self._strips_width, self._height = 0, (0, 0)
        self._lay_out(width)
        if len(self._strips) != len(before) or not width:
            self.refresh(layout=True)
            return
        pairs = enumerate(zip_longest(before, self._strips))
        changed = [y for y, (old, new) in pairs if old is not new and old != new]
        if changed:
            self.refresh(Region(0, changed[0], width, changed[-1] - changed[0] + 1))

    def renderable(self, *, is_seen: bool) -> FinishedMarkdown:
        return self._markdown([token for batch in [*self._settled, self._open_tokens] for token in batch], is_seen)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._settled_strips, self._settled_at = [], (0, 0)

    def _make_strips(self, width: int) -> list[Strip]:
        at_width, num_made = self._settled_at
        if at_width != width:
            self._settled_strips, num_made = [], 0
        for batch in self._settled[num_made:]:
            self._settled_strips += self._strips_of(self._markdown(batch), width)
            self._settled_strips += [Strip([])] * (2 if batch[-1].type == "hr" else 1)
        self._settled_at = (width, len(self._settled))
        return [*self._settled_strips, *self._strips_of(self._markdown(self._open_tokens), width)]

    def _markdown(self, tokens: list[Token], is_seen: bool = True) -> FinishedMarkdown:
        return FinishedMarkdown(tokens, self.app.theme_variables, highlights=is_seen)

    def _take(self, added: str) -> None:
        """Whatever stands before the last block is settled, once that block's first line is complete: until then it
        may turn out to go on with the one before."""
        self._open += added
        self._open_tokens = parser().parse(self._open)
        lines = self._open.split("\n")
        starts = [token.map[0] for token in self._open_tokens if token.level == 0 and token.map]
        if len(starts) > 1 and starts[-1] < len(lines) - 1:
            self._settled.append(parser().parse("\n".join(lines[: starts[-1]])))
            self._open = "\n".join(lines[starts[-1] :])
            self._open_tokens = parser().parse(self._open)
