"""Every setting, with its meaning, range and default; searched by typing, saved at once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.formatting.sanitise import visible
from app.settings.setting import Setting, Value
from app.settings.settings import Settings, search
from app.ui.key_map import KeyMap, bindings_of, key_for
from app.ui.screens import setting_words
from app.ui.screens.setting_editor import Edited, editor_for
from app.ui.widgets.key_line import KeyLine
from engine.errors import ConfigError


class SettingsScreen(Screen[None]):
    """The list of settings. A change is saved, and told to `changed`, as soon as it is made."""

    AUTO_FOCUS = "#settings-search"
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (16, "-low"), (22, "-tall")]  # noqa: RUF012
    ACTION_SCOPE: ClassVar[str] = "settings"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("settings")]

    def __init__(
        self,
        settings: Settings,
        key_map: Callable[[], KeyMap],
        change: Callable[[Setting, Value | None], None],
        needs_loading: Callable[[], bool],
    ) -> None:
        """`change` saves and applies a value; it raises ConfigError or OSError when it cannot."""
        super().__init__()
        self._settings = settings
        self._key_map = key_map
        self._change = change
        self._needs_loading = needs_loading
        self._rows: list[Setting] = []

    def compose(self) -> ComposeResult:
        yield Static(id="settings-title", markup=False)
        yield Input(placeholder="type to search", id="settings-search", compact=True)
        yield OptionList(id="settings-list", markup=False)
        yield Static(id="settings-detail")
        yield Static(id="settings-notice")
        yield KeyLine()

    def on_mount(self) -> None:
        self.show()

    def show(self, *, is_search: bool = False) -> None:
        """List what matches, the highlighted row kept; after a search, the first whose name matches highlighted."""
        current = self._current
        wanted = self.query_one("#settings-search", Input).value
        self._rows = search(setting_words.ALL_ROWS, wanted)
        options = self.query_one("#settings-list", OptionList)
        options.set_options(self._options())
        keys = [row.key for row in self._rows]
        at = current.key if current is not None and current.key in keys else next(iter(keys), None)
        if is_search:
            at = next((row.key for row in self._rows if wanted.lower().strip() in row.title.lower()), at)
        options.highlighted = options.get_option_index(at) if at is not None else None
        if options.highlighted == 1:  # its group's name above it
            options.scroll_home(animate=False)
        self._show_detail()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.show(is_search=bool(event.value.strip()))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.action_edit()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        self._show_detail()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.action_edit()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Loading again is offered while something waits for it."""
        return self._needs_loading() if action == "load" else True

    def action_move(self, step: int) -> None:
        """The row before or after, whatever has the focus."""
        options = self.query_one("#settings-list", OptionList)
        if step > 0:
            options.action_cursor_down()
        else:
            options.action_cursor_up()

    async def action_page(self, step: int) -> None:
        """A page up or down."""
        page = "page_down" if step > 0 else "page_up"
        await self.app.run_action(page, self.query_one("#settings-list", OptionList))

    def action_edit(self) -> None:
        """Give the highlighted setting another value."""
        row = self._current
        if row is None:
            return
        if row.key == "model.name":
            self.app.call_later(self.app.run_action, "app.choose_model")
            return
        text = setting_words.saved_text(row, self._settings, self._key_map())

        def edited(result: Edited | None) -> None:
            if result is not None:
                self._set(row, result.value)

        self.app.push_screen(editor_for(row, text), edited)

    def action_reset(self) -> None:
        """Back to the default."""
        if self._current is not None:
            self._set(self._current, None)

    def action_back(self) -> None:
        """Clear the search; else leave."""
        wanted = self.query_one("#settings-search", Input)
        if wanted.value:
            wanted.value = ""
        else:
            self.dismiss(None)

    async def action_load(self) -> None:
        """Load the model with what was changed."""
        await self.app.run_action("app.load_settings")
        self.dismiss(None)

    @property
    def _current(self) -> Setting | None:
        options = self.query_one("#settings-list", OptionList)
        option = options.highlighted_option
        return next((row for row in self._rows if option is not None and row.key == option.id), None)

    def _options(self) -> list[Option]:
        shown: list[Option] = []
        for group, rows in groupby(self._rows, key=lambda row: row.group):
            shown.append(Option(Content.styled(group.upper(), "bold $secondary"), disabled=True))
            lines = ((row.key, setting_words.line(row, self._settings, self._key_map())) for row in rows)
            shown.extend(Option(shown_line, id=key) for key, shown_line in lines)
        return shown

    def _set(self, row: Setting, value: Value | None) -> None:
        try:
            self._change(row, value)
        except ConfigError as error:
            self.notify(visible(error.in_full), severity="error", timeout=10, markup=False)
        except OSError as error:
            text = f"{row.title} was not saved: {error.strerror or error}"
            self.notify(visible(text), severity="error", timeout=10, markup=False)
        self.show()

    def _show_detail(self) -> None:
        row, number = self._current, sum(self._is_changed(row) for row in setting_words.ALL_ROWS)
        title = Content.assemble(
            ("Settings", "bold $primary"),
            (f"   {number} changed, marked ●   {visible(str(self._settings.file.path))}", "$quiet"),
        )
        self.query_one("#settings-title", Static).update(title)
        shown = setting_words.detail(row, self._settings, self._key_map()) if row else Content("No matches.")
        self.query_one("#settings-detail", Static).update(shown)
        notice = self.query_one("#settings-notice", Static)
        notice.display = self._needs_loading()
        load = key_for(self, "settings.load")
        notice.update(Content.styled(f"● The model runs with other settings. {load} loads it with these.", "$warning"))
        self.refresh_bindings()

    def _is_changed(self, row: Setting) -> bool:
        return setting_words.is_changed(row, self._settings, self._key_map())
