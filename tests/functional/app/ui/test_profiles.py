"""Domain profiles in the app: what the menu says of them, building and deleting them, warming the cache."""

from __future__ import annotations

import pytest
from textual import events

from app.domains.domain import num_prompts
from app.ui.screens.chat import ChatScreen
from app.ui.screens.domain_menu import DomainMenu
from app.ui.screens.sheets import ConfigurationScreen
from engine.api import Cancel, DeleteProfile, SetDomain
from engine.events import CANCELLED, DomainSet, Failed, ProfileState, TaskEnded, TaskProgress
from tests.functional.app.conftest import Stage
from tests.functional.app.fake_engine import FakeEngine

MATHS = ProfileState("maths", 0.88, 40)
DAMAGED = ProfileState("code", None, 0, "code.npz is damaged. Build it again.")


def set_domains(stage: Stage) -> list[str]:
    """The domains the engine was told of, in order."""
    return [command.domain for command in stage.engine.sent if isinstance(command, SetDomain)]


async def begin_building(stage: Stage) -> int:
    """Build the profile of Maths from the menu; returns the request."""
    await stage.loaded()
    await stage.pilot.press("down", "ctrl+b")
    await stage.asked_about("Maths")
    await stage.pilot.press("y")
    await stage.until(lambda: stage.engine.building(), "the engine was not told to build")
    return stage.engine.building()[-1].request_id


async def end_building(stage: Stage, request: int) -> None:
    """The engine has built it."""
    stage.engine.tell(TaskEnded(request, True, {"expected_hit_rate": 0.88}, ("built",)))
    stage.engine.has_profiles(MATHS)
    await stage.see("The profile of Maths is built: expected hit rate 88 %.")


class TestSlowEngine:
    """Before the engine is ready."""

    @pytest.fixture
    def engine_type(self) -> type[FakeEngine]:
        return FakeEngine

    async def test_a_dash_until_the_profiles_are_known(self, stage: Stage) -> None:
        await stage.see("–")
        await stage.until(lambda: not stage.bridge.profiles.is_known)
        await stage.pilot.press("ctrl+b", "ctrl+d", "ctrl+x")
        assert [type(command).__name__ for command in stage.engine.sent] == ["Load"]
        stage.engine.profiles = (MATHS, DAMAGED)
        stage.engine.become_ready()
        await stage.see("expected hit rate 88 %, 40 prompts")
        await stage.see("profile cannot be used")
        await stage.loaded()

    async def test_a_domain_chosen_early_is_set_before_the_first_question(self, stage: Stage) -> None:
        await stage.open_chat()
        await stage.ask("too early")
        await stage.waiting(1)
        assert set_domains(stage) == []
        stage.engine.profiles = (MATHS,)
        stage.engine.become_ready()
        await stage.until(lambda: stage.engine.submitted())
        assert isinstance(stage.engine.sent[1], SetDomain)
        stage.engine.tell(DomainSet("maths", 62, 0.88))
        await stage.see("cache warmed for Maths: 62 experts loaded")
        shown = stage.shown()
        assert shown.index("cache warmed") < shown.index("too early")


async def test_choosing_a_domain_warms_the_cache_and_says_so(stage: Stage) -> None:
    stage.engine.has_profiles(MATHS)
    await stage.see("expected hit rate 88 %, 40 prompts")
    await stage.open_chat()
    await stage.see("cache warmed for Maths: 62 experts loaded, expected hit rate 88")
    assert set_domains(stage) == ["maths"]


async def test_without_a_profile_nothing_is_said(stage: Stage) -> None:
    await stage.open_chat()
    await stage.until(lambda: stage.bridge.profiles.domain_set is not None)
    await stage.loaded()
    assert "cache warmed" not in stage.shown()
    stage.engine.tell(DomainSet("maths", 0, 0.9))
    await stage.see("cache already warm for Maths: expected hit rate 90 %")


async def test_f3_in_mid_chat_sets_the_domain_between_answers(stage: Stage) -> None:
    stage.engine.profiles = (MATHS,)
    await stage.pilot.press("alt+1")
    await stage.until(lambda: isinstance(stage.app.screen, ChatScreen) and stage.app.screen.query("#prompt"))
    request = await stage.ask_ready("hello")
    stage.engine.begin_answer("Half", 1)
    await stage.see("Half")
    await stage.pilot.press("f3")
    await stage.until(lambda: isinstance(stage.app.screen, DomainMenu))
    await stage.open_chat()
    await stage.see("cache warmed for Maths")
    assert set_domains(stage) == ["general", "maths"]
    sent = stage.engine.sent
    assert sent.index(Cancel(request)) < sent.index(SetDomain("maths"))


async def test_a_profile_that_cannot_be_used_ends_no_answer(stage: Stage) -> None:
    stage.engine.has_profiles(DAMAGED)
    await stage.see("profile cannot be used")
    await stage.pilot.press("down", "down", "down")
    await stage.see("code.npz is damaged")
    await stage.open_chat()
    await stage.ask_ready("hello")
    stage.engine.tell(Failed(None, "A domain profile cannot be used", "It is damaged.", "Build it.", is_fatal=False))
    await stage.see("A domain profile cannot be used: It is damaged. Build it.")
    assert "f8" not in stage.shown()
    request = stage.engine.begin_answer("Hi there", 2)
    await stage.see("Hi there")
    stage.engine.end_answer(request, "Hi there.", 3)
    await stage.see("3 tok · TTFT")


async def test_building_asks_shows_progress_and_ends_in_the_menu(stage: Stage) -> None:
    await stage.loaded()
    await stage.pilot.press("down", "ctrl+b")
    await stage.see(f"{num_prompts('maths')} prompts are answered, up to 48 tokens each")
    await stage.pilot.press("escape")
    await stage.until(lambda: "Build a profile" not in stage.shown())
    assert stage.engine.building() == []
    assert isinstance(stage.app.screen, DomainMenu)
    await stage.pilot.press("ctrl+b")
    await stage.asked_about("Maths")
    await stage.pilot.press("up")
    await stage.until(lambda: isinstance(stage.app.screen, DomainMenu), "another key does not take the question back")
    await stage.pilot.press("ctrl+b")
    await stage.asked_about("Maths")
    await stage.pilot.press("y")
    await stage.until(lambda: stage.engine.building())
    (command,) = stage.engine.building()
    assert (command.domain, command.num_new_tok, command.prompts_path) == ("maths", 48, None)
    await stage.see("waiting for the engine")
    stage.engine.tell(TaskProgress(command.request_id, "recording", 0, 40))
    await stage.see("0 of 40 prompts")
    stage.engine.tell(TaskProgress(command.request_id, "recording", 12, 40))
    await stage.see("12 of 40 prompts")
    await stage.see("s left · ctrl+x cancels")
    await stage.pilot.press("ctrl+b")
    stage.engine.tell(TaskProgress(command.request_id, "replaying", 0, 1))
    await stage.see("profile of Maths: replaying")
    await end_building(stage, command.request_id)
    await stage.see("expected hit rate 88 %, 40 prompts")
    assert len(stage.engine.building()) == 1


@pytest.mark.parametrize("key", ["escape", "ctrl+x"])
async def test_building_is_cancelled_once_confirmed(stage: Stage, key: str) -> None:
    request = await begin_building(stage)
    for answer in ("escape", "y"):
        await stage.pilot.press(key)
        await stage.asked_about("Maths")
        assert Cancel(request) not in stage.engine.sent
        await stage.pilot.press(answer)
    await stage.until(lambda: Cancel(request) in stage.engine.sent)
    await stage.see("stopping the profile of Maths")
    stage.engine.tell(Failed(request, "Stopped", "It was stopped.", "", is_fatal=False))
    await stage.see("was stopped; nothing was")
    await stage.until(lambda: "stopping the profile" not in stage.shown())
    assert isinstance(stage.app.screen, DomainMenu)


async def test_a_question_is_asked_at_once_while_a_profile_is_built(stage: Stage) -> None:
    request = await begin_building(stage)
    await stage.pilot.press("alt+2")
    await stage.until(lambda: isinstance(stage.app.screen, ChatScreen) and stage.app.screen.query("#prompt"))
    stage.engine.tell(TaskProgress(request, "recording", 3, 40))
    await stage.see("3 of 40 prompts")
    await stage.see("esc cancels")
    asked = await stage.ask_ready("two")
    stage.engine.end_answer(stage.engine.begin_answer("An answer.", 2), "An answer.", 2)
    assert asked != request
    await stage.see("2 tok")
    stage.engine.tell(TaskProgress(request, "recording", 4, 40))
    await stage.see("4 of 40 prompts")
    await end_building(stage, request)
    await stage.see("cache warmed for Maths")
    assert set_domains(stage) == ["maths", "maths"], "the new profile does not warm the chat's own domain"


async def test_esc_in_the_chat_stops_the_answer_then_asks_about_building(stage: Stage) -> None:
    request = await begin_building(stage)
    await stage.open_chat()
    asked = await stage.ask_ready("two")
    await stage.pilot.press("escape")
    await stage.until(lambda: Cancel(asked) in stage.engine.sent)
    stage.engine.end_answer(asked, "", 0, CANCELLED)
    await stage.until(lambda: stage.chat.flow.live is None)
    await stage.pilot.press("escape")
    await stage.asked_about("Maths")
    assert Cancel(request) not in stage.engine.sent
    await stage.pilot.press("y")
    await stage.until(lambda: Cancel(request) in stage.engine.sent)


async def test_esc_asks_about_building_at_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the engine says anything more: under load its next word may take long."""
    request = await begin_building(stage)
    await stage.open_chat()
    monkeypatch.setattr(stage.bridge, "poll", list)
    stage.app.post_message(events.Key("escape", None))
    await stage.asked_about("Maths")
    assert Cancel(request) not in stage.engine.sent


async def test_building_that_fails_is_told(stage: Stage) -> None:
    request = await begin_building(stage)
    stage.engine.tell(Failed(request, "A disk", "It is full.", "Free some space.", is_fatal=False))
    await stage.see("A disk: It is full.")
    await stage.until(lambda: stage.bridge.profiles.task is None)


async def test_the_engine_dies_while_building_and_comes_back(stage: Stage) -> None:
    await begin_building(stage)
    stage.engine.die()
    await stage.see("The engine ended while it worked")
    await stage.until(lambda: not stage.bridge.profiles.is_known)
    await stage.open_chat()
    await stage.pilot.press("f8")
    await stage.until(lambda: len(stage.engines) == 2)
    await stage.until(lambda: set_domains(stage) == ["maths"], "the new engine was not told the domain")


async def test_deleting_asks_first(stage: Stage) -> None:
    stage.engine.has_profiles(MATHS)
    await stage.see("expected hit rate 88 %")
    await stage.pilot.press("ctrl+d")
    assert "Delete" not in stage.shown().replace("Delete profile", ""), "General has none to delete"
    await stage.pilot.press("down", "ctrl+d")
    await stage.asked_about("Maths")
    await stage.pilot.press("escape", "ctrl+d")
    await stage.asked_about("Maths")
    await stage.pilot.press("y")
    await stage.until(lambda: isinstance(stage.engine.sent[-1], DeleteProfile))
    deletion = stage.engine.sent[-1]
    assert isinstance(deletion, DeleteProfile)
    assert deletion.domain == "maths"
    stage.engine.tell(TaskEnded(deletion.request_id, True, {"deleted": "maths"}, ("deleted",)))
    stage.engine.has_profiles()
    await stage.see("The profile of Maths is deleted.")
    await stage.until(lambda: "expected hit rate" not in stage.shown())


async def test_a_profile_of_the_users_own_is_a_domain_of_its_own(stage: Stage) -> None:
    stage.engine.has_profiles(ProfileState("my-tickets", 0.7, 12))
    await stage.see("my-tickets")
    await stage.see("expected hit rate 70 %, 12 prompts")
    await stage.pilot.press("alt+8")
    await stage.see("moe-chat · my-tickets")
    await stage.see("cache warmed for my-tickets")
    await stage.ask_ready("hello")
    assert [message.role for message in stage.engine.submitted()[0].messages] == ["user"]


@pytest.mark.parametrize("size", [(80, 24)])
async def test_the_menu_fits_a_small_terminal(stage: Stage) -> None:
    stage.engine.has_profiles(MATHS, DAMAGED)
    await stage.see("88 %, 40 prompts")
    await stage.see("profile unusable")
    await stage.loaded()
    await stage.pilot.press("down", "ctrl+b")
    await stage.asked_about("Maths")
    await stage.pilot.press("escape")
    await stage.pilot.resize_terminal(120, 40)
    await stage.see("expected hit rate 88 %, 40 prompts")


async def test_the_configuration_is_shown(stage: Stage) -> None:
    await stage.open_chat()
    await stage.loaded()
    commands = {command.title: command for command in stage.app.get_system_commands(stage.app.screen)}
    stage.app.call_later(commands["Show configuration"].callback)
    await stage.until(lambda: isinstance(stage.app.screen, ConfigurationScreen))
    await stage.see("residency  50 %")
    await stage.pilot.press("escape")
    await stage.until(lambda: isinstance(stage.app.screen, ChatScreen))
