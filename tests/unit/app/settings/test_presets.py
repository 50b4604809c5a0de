"""Presets of the user's own: readable files, each wrong one told by file and line, nothing written over or lost."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.settings.file import SettingsFile
from app.settings.preset_command import carry_out
from app.settings.presets import Preset, PresetError, Presets, of_chat, usable
from app.settings.settings import Given, Settings
from app.storage.records import KeptPreset


@pytest.fixture
def presets(tmp_path: Path) -> Presets:
    return Presets(tmp_path / "presets")


def _write(presets: Presets, name: str, text: str) -> None:
    presets.folder.mkdir(exist_ok=True)
    (presets.folder / f"{name}.toml").write_text(text)


def test_a_preset_is_a_file_that_a_person_reads(presets: Presets) -> None:
    prompt = 'Answer briefly.\nNever say "sure".'
    presets.save(Preset("terse", {"chat.system_prompt": prompt, "sampling.temperature": 0.2, "offload.mode": "approx"}))
    text = (presets.folder / "terse.toml").read_text()
    assert "Answer briefly.\nNever say" in text
    assert tomllib.loads(text)["chat"]["system_prompt"] == prompt
    assert presets.load("terse").values["sampling.temperature"] == 0.2
    assert presets.folder.stat().st_mode & 0o077 == 0


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip))
def test_any_system_prompt_comes_back(tmp_path_factory: pytest.TempPathFactory, prompt: str) -> None:
    presets = Presets(tmp_path_factory.mktemp("presets"))
    presets.save(Preset("one", {"chat.system_prompt": prompt}))
    assert presets.load("one").values == {"chat.system_prompt": prompt}


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("[sampling]\ntemperature = = 1\n", 2, "Mend"),
        ("[sampling]\ntemperatur = 0.5\n", 2, "Did you mean sampling.temperature?"),
        ("[sampling]\ntop_p = 4\n", 2, "from 0 to 1"),
        ('[model]\nname = "x"\n', 2, "cannot be in a preset"),
        ("# note\nmode = 'approx'\n", 2, "Did you mean offload.mode?"),
    ],
)
def test_a_wrong_file_is_told_by_line_and_left_as_it_is(presets: Presets, text: str, line: int, told: str) -> None:
    _write(presets, "bad", text)
    with pytest.raises(PresetError) as caught:
        presets.load("bad")
    assert f"bad.toml, line {line}" in caught.value.message
    assert told in f"{caught.value.message} {caught.value.hint}"
    assert (presets.folder / "bad.toml").read_text() == text
    assert presets.names() == ["bad"]


def test_nothing_is_written_over_and_what_is_deleted_comes_back(presets: Presets) -> None:
    presets.save(Preset("a", {"sampling.seed": 1}))
    presets.save(Preset("b", {"sampling.seed": 2}))
    with pytest.raises(PresetError, match="already"):
        presets.save(Preset("a", {}))
    with pytest.raises(PresetError, match="already"):
        presets.rename("a", "b")
    presets.rename("b", "c")
    presets.delete("a")
    assert presets.names() == ["c"]
    presets.restore("a")
    assert presets.load("a").values == {"sampling.seed": 1}
    with pytest.raises(PresetError, match="no deleted preset"):
        presets.restore("a")
    with pytest.raises(PresetError) as caught:
        presets.load("cc")
    assert "Did you mean c?" in caught.value.hint


@pytest.mark.parametrize("name", ["../up", "save", "none", "", "a b", "x" * 41, ".hidden", "a/b"])
def test_a_name_stays_inside_the_folder(presets: Presets, name: str) -> None:
    with pytest.raises(PresetError):
        presets.save(Preset(name, {}))
    assert not presets.folder.exists() or not list(presets.folder.iterdir())


def test_what_is_typed_behind_the_command(presets: Presets) -> None:
    def current(name: str) -> Preset:
        return Preset(name, {"sampling.seed": 7})

    assert carry_out(presets, "save mine", current).chosen == Preset("mine", {"sampling.seed": 7})
    assert carry_out(presets, "mine", current).chosen == Preset("mine", {"sampling.seed": 7})
    assert carry_out(presets, "none", current).drops
    assert "brings it back" in carry_out(presets, "delete mine", current).said
    assert carry_out(presets, "restore mine", current).chosen is None
    for wrong in ("save", "rename mine", "mine twice", "absent"):
        with pytest.raises(PresetError):
            carry_out(presets, wrong, current)


def test_the_command_line_wins_over_a_preset_and_that_over_the_rest(tmp_path: Path) -> None:
    file = SettingsFile(tmp_path / "settings.toml")
    file.write({("sampling", "temperature"): 0.9, ("sampling", "top_k"): 5})
    settings = Settings(file, {"sampling.top_p": Given("0.5", "--top-p"), "sampling.seed": Given("3", "MOE_CHAT_SEED")})
    kept = KeptPreset("x", {"sampling.temperature": 0.1, "sampling.top_p": 0.7, "sampling.seed": 4, "model.name": "y"})
    sampling = settings.sampling(usable(kept))
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (0.1, 0.5, 5, 4)


def test_what_a_file_of_chats_has_in_a_preset_is_checked_where_it_is_used() -> None:
    assert usable(KeptPreset("x", {"sampling.temperature": "hot", "sampling.seed": 2, "nothing": 1})) == {
        "sampling.seed": 2
    }


def test_a_preset_from_a_chat_has_what_is_set_and_nothing_else(tmp_path: Path) -> None:
    settings = Settings(SettingsFile(tmp_path / "none.toml"), {"sampling.temperature": Given("0.3", "--temperature")})
    made = of_chat("mine", settings.value, "Be brief.", {"sampling.seed": 1})
    assert made.values == {"sampling.temperature": 0.3, "sampling.seed": 1, "chat.system_prompt": "Be brief."}
