"""The list of domains, each with what its profile promises."""

from __future__ import annotations

from textual import events
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.domains import profile_words
from app.domains.domain import Domain, all_domains, own_domain
from app.domains.profile_book import ProfileBook

_WIDE = 94
"""Columns from which the long form of a profile's state fits."""

_NAME_WIDTH, _PURPOSE_WIDTH, _STATE_WIDTH = 16, 40, 18
_NARROW = 3 + _NAME_WIDTH + _PURPOSE_WIDTH + _STATE_WIDTH
"""Columns below which a profile's state stands before the purpose, whose end is cut."""


class DomainList(OptionList):
    """The built-in domains, then those that are there by a profile of the user's own."""

    def __init__(self, book: ProfileBook, proposed: str, widget_id: str) -> None:
        super().__init__(id=widget_id)
        self._book = book
        self._proposed = proposed
        self._entries: list[Content] = []
        self.domains: tuple[Domain, ...] = ()

    def on_mount(self) -> None:
        self.show()
        names = [domain.name for domain in self.domains]
        self.highlighted = names.index(self._proposed) if self._proposed in names else 0

    def on_resize(self, event: events.Resize) -> None:
        self.show()

    @property
    def current(self) -> Domain:
        """The highlighted domain."""
        return self.domains[self.highlighted or 0]

    def show(self) -> None:
        """Bring the entries up to date; what did not change is not drawn again."""
        built_in = all_domains()
        known = {domain.name for domain in built_in}
        domains = (*built_in, *(own_domain(name) for name in self._book.names() if name not in known))
        entries = [self._entry(number, domain) for number, domain in enumerate(domains, 1)]
        if len(domains) != len(self.domains):
            highlighted = min(self.highlighted or 0, len(domains) - 1)
            self.set_options(Option(entry) for entry in entries)
            self.highlighted = highlighted
        else:
            for index, (entry, before) in enumerate(zip(entries, self._entries, strict=True)):
                if entry != before:
                    self.replace_option_prompt_at_index(index, entry)
        self.domains, self._entries = domains, entries

    def _entry(self, number: int, domain: Domain) -> Content:
        state, is_known = self._book.state(domain.name), self._book.is_known
        is_short = self.size.width < _WIDE
        colour = "$warning" if state and state.problem else "$secondary" if state else "$quiet"
        about = profile_words.state_text(state, is_known=is_known, is_short=is_short)
        parts = [(f"{domain.purpose:<{_PURPOSE_WIDTH}}", "$foreground 80%"), (about, colour)]
        if self.size.width < _NARROW:
            parts = [(f"{about:<{_STATE_WIDTH}}", colour), (domain.purpose, "$foreground 80%")]
        return Content.assemble(
            (f"{number:<3}" if number < 10 else "   ", "$quiet"),
            (f"{domain.title:<{_NAME_WIDTH - 1}} ", "bold"),
            *parts,
        )
