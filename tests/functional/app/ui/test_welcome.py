"""The first run, and the choice of the model."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from textual.widgets import Input, OptionList, Static

from app.ui.screens.chat import ChatScreen
from app.ui.screens.domain_menu import DomainMenu
from app.ui.screens.model_picker import ModelPicker
from app.ui.screens.welcome import Welcome
from app.ui.widgets.model_list import ModelList
from engine.api import Cancel, Load
from engine.checkpoint.catalogue import ModelEntry
from engine.config import DEMO_MODEL, EngineConfig
from engine.events import TextDelta
from tests.functional.app.conftest import Stage

QWEN = ModelEntry("Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-30B-A3B", True, "", "qwen3_moe", 48, 128, 8, 61 * 10**9)
DENSE = ModelEntry("meta/Dense-8B", "meta/Dense-8B", False, "not a Mixture-of-Experts model", "llama", 32)
DEMO = ModelEntry(DEMO_MODEL, DEMO_MODEL, is_supported=True, reason="")


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch) -> list[list[Path]]:
    """The models there are; returns the folders that were searched."""
    searched: list[list[Path]] = []

    def find(folders: list[Path], config: EngineConfig) -> tuple[ModelEntry, ...]:
        searched.append(list(folders))
        return (DEMO, DENSE, QWEN)

    monkeypatch.setattr("app.ui.widgets.model_list.list_models", find)
    return searched


def saved(stage: Stage) -> dict[str, dict[str, object]]:
    return tomllib.loads(stage.settings.file.path.read_text())


def shows(stage: Stage, selector: str) -> bool:
    """That question is on screen."""
    return any(part.display for part in stage.app.screen.query(selector))


def loads(stage: Stage) -> list[Load]:
    return [command for command in stage.engine.sent if isinstance(command, Load)]


class TestFirstRun:
    @pytest.fixture
    def saved_settings(self) -> str | None:
        return None

    async def test_enter_enter_enter_is_a_chat_with_the_demo(self, stage: Stage) -> None:
        assert isinstance(stage.app.screen, Welcome)
        await stage.see("Welcome to moe-chat")
        assert loads(stage) == [], "nothing is loaded before the user has said what"
        await stage.pilot.press("enter")
        await stage.until(lambda: shows(stage, "#welcome-memory"))
        await stage.pilot.press("enter")
        await stage.until(lambda: isinstance(stage.app.screen, DomainMenu))
        await stage.until(lambda: [load.config.residency for load in loads(stage)] == [0.5])
        await stage.pilot.press("enter")
        await stage.until(lambda: isinstance(stage.app.screen, ChatScreen))
        assert saved(stage) == {"model": {"name": DEMO_MODEL}, "chat": {"domain": "general"}}
        assert stage.settings.file.exists

    async def test_another_model_and_a_typed_budget(self, stage: Stage) -> None:
        await stage.see("Qwen/Qwen3-30B-A3B")
        await stage.see("48 x 128 experts, 8 a token · 56.8 GiB")
        await stage.pilot.press("down", "enter")
        await stage.see("What is free")
        await stage.pilot.press("tab", *"lots", "enter")
        complaint = stage.app.screen.query_one("#budget-about", Static)
        await stage.until(lambda: "6GiB" in str(complaint.content))
        stage.app.screen.query_one("#budget", Input).value = "1KB"
        await stage.until(lambda: "takes more" in str(complaint.content))
        await stage.pilot.press("enter")
        assert not loads(stage)
        stage.app.screen.query_one("#budget", Input).value = "6GiB"
        await stage.pilot.press("enter")
        await stage.until(lambda: loads(stage))
        (load,) = loads(stage)
        assert (load.config.model, load.config.memory_bytes, load.config.residency) == (QWEN.location, 6 * 2**30, None)
        assert saved(stage)["model"] == {"name": QWEN.location, "memory": "6GiB"}

    async def test_enter_on_the_empty_line_takes_what_is_highlighted(self, stage: Stage) -> None:
        await stage.pilot.press("tab", "x", "backspace", "enter")
        await stage.until(lambda: shows(stage, "#welcome-memory"))
        await stage.pilot.press("tab", "enter")
        await stage.until(lambda: isinstance(stage.app.screen, DomainMenu))

    async def test_escape_takes_what_is_set(self, stage: Stage) -> None:
        await stage.pilot.press("enter")
        await stage.until(lambda: shows(stage, "#welcome-memory"))
        await stage.pilot.press("escape")
        await stage.until(lambda: shows(stage, "#welcome-model"))
        await stage.pilot.press("escape")
        await stage.until(lambda: isinstance(stage.app.screen, DomainMenu))
        await stage.until(lambda: loads(stage))
        assert stage.settings.file.exists, "it would be asked again"

    @pytest.mark.parametrize("size", [(80, 24), (50, 14)])
    async def test_it_fits_a_small_terminal(self, stage: Stage) -> None:
        await stage.until(lambda: shows(stage, "#welcome-model"))
        await stage.see("The demo")
        await stage.pilot.press("enter")
        await stage.see("Half of the experts")


async def test_the_second_run_asks_nothing(stage: Stage) -> None:
    assert isinstance(stage.app.screen, DomainMenu)
    await stage.until(lambda: loads(stage))


async def test_the_welcome_can_be_asked_for(stage: Stage) -> None:
    await stage.open_chat()
    await stage.app.run_action("app.welcome")
    await stage.until(lambda: isinstance(stage.app.screen, Welcome))
    await stage.pilot.press("escape")
    await stage.until(lambda: isinstance(stage.app.screen, ChatScreen))
    assert len(loads(stage)) == 1


async def open_picker(stage: Stage) -> ModelList:
    await stage.app.run_action("app.choose_model")
    await stage.until(lambda: isinstance(stage.app.screen, ModelPicker) and stage.app.screen.query(ModelList))
    models = stage.app.screen.query_one(ModelList)
    await stage.until(lambda: models.is_complete)
    return models


async def test_another_model_is_loaded_and_the_chat_stays(stage: Stage) -> None:
    await stage.open_chat()
    request = await stage.ask_ready("hello")
    stage.engine.tell(TextDelta(request, "Half an answer", 3))
    await stage.see("Half an answer")
    await open_picker(stage)
    await stage.see("not a Mixture-of-Experts model")
    await stage.pilot.press("down", "enter")
    await stage.until(lambda: len(loads(stage)) == 2)
    sent = stage.engine.sent
    assert Cancel() in sent[: sent.index(loads(stage)[1])], "the running answer is stopped first"
    assert loads(stage)[1].config.model == QWEN.location
    assert saved(stage)["model"]["name"] == QWEN.location
    await stage.see("Half an answer")


async def test_what_cannot_be_run_cannot_be_chosen(stage: Stage) -> None:
    await stage.open_chat()
    models = await open_picker(stage)
    assert [entry.location for entry in models.entries] == [DEMO.location, QWEN.location, DENSE.location]
    assert models.get_option_at_index(2).disabled
    await stage.pilot.press("down", "down", "down")
    assert isinstance(stage.app.screen, ModelPicker)
    assert models.highlighted in (0, 1)


async def test_a_typed_folder_says_what_it_is_and_is_remembered(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, models: list[list[Path]]
) -> None:
    folder = tmp_path / "my model"
    folder.mkdir()
    entry = ModelEntry("my model", str(folder), True, "", "olmoe", 16, 64, 8, 10**9)
    monkeypatch.setattr(
        "app.ui.screens.model_picker.describe_model", lambda path, _: entry if path == folder else DENSE
    )
    await stage.open_chat()
    await open_picker(stage)
    await stage.pilot.press("tab")
    field = stage.app.screen.query_one("#model-name", Input)
    field.value = "/no/such"
    await stage.see("✕ not a Mixture-of-Experts model")
    await stage.pilot.press("enter")
    assert isinstance(stage.app.screen, ModelPicker)
    field.value = str(folder)
    await stage.see("● 16 x 64 experts, 8 a token")
    await stage.pilot.press("enter")
    await stage.until(lambda: len(loads(stage)) == 2)
    assert saved(stage)["model"] == {"name": str(folder), "folders": [str(folder)]}
    await open_picker(stage)
    assert models[-1] == [folder]


async def test_escape_keeps_the_model(stage: Stage) -> None:
    await stage.open_chat()
    await open_picker(stage)
    await stage.pilot.press("escape")
    await stage.until(lambda: isinstance(stage.app.screen, ChatScreen))
    assert len(loads(stage)) == 1


async def test_a_name_of_the_hub_is_taken_as_it_is(stage: Stage) -> None:
    await stage.open_chat()
    await open_picker(stage)
    await stage.pilot.press("tab", *"owner/model")
    await stage.see("from Hugging Face")
    await stage.pilot.press("enter")
    await stage.until(lambda: len(loads(stage)) == 2)
    assert loads(stage)[1].config.model == "owner/model"
    assert stage.app.screen.query(OptionList) is not None
