"""Settings: what wins over what, what a damaged file costs (nothing), and what survives a change."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest

from app.cli import main as cli
from app.settings.file import SettingsFile
from app.settings.schema import SETTINGS, setting_named
from app.settings.setting import Kind, Setting
from app.settings.settings import Given, Settings, search
from engine.config import EngineConfig, SamplingConfig
from engine.errors import ConfigError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "settings.toml"


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def settings_of(path: Path, argv: str = "", **environment: str) -> Settings:
    arguments = cli.build_parser().parse_args(argv.split())
    return Settings.of(arguments, {"MOE_CHAT_HOME": str(path.parents[1]), **environment})


def test_without_a_file_the_defaults_are_those_of_the_command_line(path: Path) -> None:
    settings = settings_of(path)
    assert settings.is_first_run
    assert settings.problems == []
    assert settings.engine_config() == EngineConfig(backend="auto", residency=0.5)
    assert settings.sampling() == SamplingConfig()


@pytest.mark.parametrize("argv", ["-m owner/model", "--memory 6GiB", "--residency 25%"])
def test_a_first_run_that_says_what_to_load_is_asked_nothing(path: Path, argv: str) -> None:
    assert not settings_of(path, argv).is_first_run
    assert settings_of(path, "--temperature 0").is_first_run


def test_a_first_run_whose_environment_names_the_model_is_asked_nothing(path: Path) -> None:
    assert not settings_of(path, MOE_CHAT_MODEL="owner/model").is_first_run


def test_each_default_is_valid_and_each_option_exists() -> None:
    flags = [f"{setting.flag}=1" for setting in SETTINGS if setting.flags]
    known = vars(cli.build_parser().parse_args(flags))
    for setting in SETTINGS:
        assert setting.default is None or setting.checked(setting.default) == setting.default
        assert (setting.default is None) == bool(setting.unset), setting.key
        assert setting.kind is not Kind.CHOICE or setting.choices
        assert not setting.flags or setting.key in known
        assert setting.title
        assert setting.meaning.endswith(".")


def test_the_engines_own_defaults_are_the_same() -> None:
    config = EngineConfig()
    for key, value in (
        ("model.name", config.model),
        ("offload.mode", config.mode),
        ("offload.alpha", config.alpha),
        ("offload.prefill", config.prefill),
        ("offload.eviction", config.eviction),
        ("offload.prefetch", config.prefetch),
        ("offload.prefetch_depth", config.prefetch_depth),
        ("offload.link_threads", config.link_threads),
    ):
        setting = setting_named(key)
        assert setting is not None
        assert setting.default == value, key


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(path: Path) -> None:
    written(path, '[offload]\neviction = "lru"\nalpha = 0.1\nprefetch_depth = 3\n[sampling]\ntemperature = 0\n')
    settings = settings_of(path, "--eviction lfu", MOE_CHAT_EVICTION="history", MOE_CHAT_ALPHA="0.2")
    config = settings.engine_config()
    assert (config.eviction, config.alpha, config.prefetch_depth) == ("lfu", 0.2, 3)
    assert settings.sampling().temperature == 0
    eviction, alpha = settings.given("offload.eviction"), settings.given("offload.alpha")
    assert eviction is not None
    assert alpha is not None
    assert (eviction.by, alpha.by) == ("--eviction", "MOE_CHAT_ALPHA")
    assert settings.value("offload.eviction") == "lfu"
    assert settings.stored("offload.eviction") == "lru"


def test_a_budget_on_the_command_line_replaces_the_other_kind_in_the_file(path: Path) -> None:
    written(path, '[model]\nresidency = "25%"\n')
    assert settings_of(path).engine_config().residency == 0.25
    config = settings_of(path, "--memory 2GiB").engine_config()
    assert (config.memory_bytes, config.residency) == (2**31, None)


def test_a_budget_on_the_command_line_replaces_the_other_kind_in_the_environment(path: Path) -> None:
    config = settings_of(path, "--memory 2GiB", MOE_CHAT_RESIDENCY="25%").engine_config()
    assert (config.memory_bytes, config.residency) == (2**31, None)


def test_variables_give_every_setting(path: Path) -> None:
    settings = settings_of(path, MOE_CHAT_THEME="light", MOE_CHAT_THINKING="off", MOE_CHAT_PANEL_RATE="2")
    assert [settings.value(key) for key in ("screen.theme", "chat.thinking", "screen.panel_rate")] == [
        "light",
        "off",
        2,
    ]
    assert settings.engine_changes() == {}
    with pytest.raises(ConfigError, match="MOE_CHAT_PANEL_RATE"):
        settings_of(path, MOE_CHAT_PANEL_RATE="100")


def test_setting_the_memory_takes_the_residency_out(path: Path) -> None:
    settings = settings_of(written(path, '[model]\nresidency = "25%"\n'))
    settings.change({"model.memory": "1GiB"})
    assert tomllib.loads(path.read_text()) == {"model": {"memory": "1GiB"}}
    assert settings.engine_config().memory_bytes == 2**30


def test_both_budgets_in_the_file_are_told(path: Path) -> None:
    settings = settings_of(written(path, '[model]\nresidency = "25%"\nmemory = "1GiB"\n'))
    assert settings.engine_config().memory_bytes == 2**30
    assert any("both model.memory and model.residency" in problem for problem in settings.problems)


def test_comments_order_and_unknown_keys_survive_a_change(path: Path) -> None:
    text = '# mine\n[future]\nshape = "round"  # odd\n\n[sampling]\ntop_p = 0.9 # tuned\n'
    settings = settings_of(written(path, text))
    assert any("future.shape" in problem and "left as it is" in problem for problem in settings.problems)
    settings.change({"sampling.temperature": 0.3})
    settings.change_keys("chat.mode", "f6")
    kept = path.read_text()
    assert kept.startswith('# mine\n[future]\nshape = "round"  # odd\n')
    assert "top_p = 0.9 # tuned" in kept
    assert tomllib.loads(kept)["sampling"] == {"top_p": 0.9, "temperature": 0.3}
    assert settings_of(path).key_map == {"chat.mode": "f6"}
    settings.change({"sampling.temperature": None})
    settings.change_keys("chat.mode", None)
    assert tomllib.loads(path.read_text())["sampling"] == {"top_p": 0.9}


def test_what_another_instance_wrote_meanwhile_is_kept(path: Path) -> None:
    first, second = settings_of(path), settings_of(path)
    first.change({"sampling.seed": 7})
    second.change({"screen.theme": "light"})
    assert tomllib.loads(path.read_text()) == {"sampling": {"seed": 7}, "screen": {"theme": "light"}}


@pytest.mark.parametrize(
    ("content", "line", "told"),
    [
        (b"[sampling\ntemperature = 0.5", 1, "Expected"),
        (b"[sampling]\ntop_p = 0.9\ntemprature 0.5\n", 3, "Did you mean sampling.temperature?"),
        (b"[sampling]\ntop_p = \n", 2, "Invalid value in 'top_p ='"),
        (b"[sampling]\nseed = 1\nseed = 2\n", 3, "overwrite"),
        (b"[chat]\nsystem_prompt = [\n", 2, "at the end of the file"),
        (b"# \xfc\n[sampling]\n", 1, "UTF-8"),
        (b"[sampling]\nseed = " + b"9" * 5000, 2, "too many digits"),
        (b"[sampling]\nseed = " + b"[" * 50_000, None, "nested too deeply"),
    ],
)
def test_a_file_with_a_typo_stays_and_nothing_is_saved_until_it_is_mended(
    path: Path, content: bytes, line: int | None, told: str
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    settings = settings_of(path)
    (problem,) = settings.problems
    assert f"{path}, line {line}: " in problem if line else str(path) in problem
    assert told in problem
    assert settings.sampling() == SamplingConfig()
    with pytest.raises(OSError, match="Correct it first"):
        settings.change({"sampling.temperature": 0.5})
    assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]
    path.write_text("[sampling]\ntop_p = 0.9\n")
    settings.change({"sampling.temperature": 0.5})
    assert tomllib.loads(path.read_text()) == {"sampling": {"top_p": 0.9, "temperature": 0.5}}


@pytest.mark.parametrize("text", ["1" + "0" * 500 + "GiB", "1" + "0" * 30])
def test_more_bytes_than_there_are_is_a_sentence(path: Path, text: str) -> None:
    (problem,) = settings_of(written(path, f'[model]\nmemory = "{text}"\n')).problems
    assert "line 2: model.memory" in problem
    with pytest.raises(ConfigError, match="more bytes"):
        settings_of(path, MOE_CHAT_MEMORY=text).engine_config()


def test_what_is_no_file_is_said_and_never_waited_for(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    settings = settings_of(path)
    assert "not a file" in settings.problems[0]
    with pytest.raises(OSError, match="not written over"):
        settings.change({"sampling.seed": 1})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[model]\n\n[sampling] # mine\n# temprature = 3\ntemprature = 1\n", 5),
        ("sampling.temprature = 1\n", 1),
        ("[sampling]\n'temprature' = 1\n", 2),
    ],
)
def test_an_unknown_key_is_said_with_its_line(path: Path, text: str, line: int) -> None:
    (problem,) = settings_of(written(path, text)).problems
    assert problem.startswith(f"{path}, line {line}: sampling.temprature")
    assert problem.endswith("Did you mean sampling.temperature?")


@pytest.mark.parametrize(
    "value", ["1" + "0" * 400, "[[[[" + "1, " * 3000 + "]]]]", "-" + "9" * 4000, '"' + "x" * 9999 + '"']
)
def test_a_huge_value_is_a_sentence(path: Path, value: str) -> None:
    (problem,) = settings_of(written(path, f"[sampling]\ntemperature = {value}\n")).problems
    assert "line 2: sampling.temperature = " in problem
    assert len(problem) < 300 + len(str(path))


@pytest.mark.parametrize(
    "line",
    [
        "[sampling]\ntemperature = -1",
        '[sampling]\ntemperature = "hot"',
        "[sampling]\ntop_k = 1.5",
        "[sampling]\ntop_k = true",
        "[sampling]\nmin_p = nan",
        '[model]\nmemory = "lots"',
        '[model]\nmemory = "0"',
        '[model]\nresidency = "130%"',
        "[model]\nname = 3",
        '[screen]\ntheme = "pink"',
    ],
)
def test_a_value_out_of_range_is_told_with_the_range_and_left_in_the_file(path: Path, line: str) -> None:
    settings = settings_of(written(path, line))
    (problem,) = settings.problems
    key = line.split("\n")[1].split(" = ")[0]
    assert f"{key} = " in problem
    assert "The default holds." in problem
    assert settings.engine_config() == EngineConfig(backend="auto", residency=0.5)
    assert settings.sampling() == SamplingConfig()
    settings.change({"sampling.seed": 1})
    assert line in path.read_text()


def test_an_unknown_key_names_the_nearest(path: Path) -> None:
    settings = settings_of(written(path, "[sampling]\ntemprature = 1"))
    assert "Did you mean sampling.temperature?" in settings.problems[0]


def test_a_file_that_cannot_be_read_is_never_written_over(path: Path) -> None:
    path.mkdir(parents=True)
    settings = settings_of(path)
    assert "cannot be read" in settings.problems[0]
    with pytest.raises(OSError, match="not written over"):
        settings.change({"sampling.seed": 1})
    assert settings.value("sampling.seed") is None


def test_a_failed_write_leaves_the_old_file_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(written(path, "[sampling]\nseed = 1\n"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("app.settings.file.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        settings.change({"sampling.seed": 2})
    assert path.read_text() == "[sampling]\nseed = 1\n"
    assert list(path.parent.iterdir()) == [path]
    assert settings.value("sampling.seed") == 1


def test_a_linked_file_stays_a_link(path: Path, tmp_path: Path) -> None:
    target = written(tmp_path / "dotfiles" / "moe.toml", "[sampling]\nseed = 1\n")
    target.chmod(0o600)
    path.parent.mkdir()
    path.symlink_to(target)
    settings_of(path).change({"sampling.seed": 2})
    assert path.is_symlink()
    assert tomllib.loads(target.read_text()) == {"sampling": {"seed": 2}}
    assert target.stat().st_mode & 0o777 == 0o600


def test_typed_text_becomes_a_value_or_says_what_it_may_be() -> None:
    seed, folders, theme = setting_named("sampling.seed"), setting_named("model.folders"), setting_named("screen.theme")
    assert seed is not None
    assert folders is not None
    assert theme is not None
    assert (seed.parse(" 7 "), seed.parse("")) == (7, None)
    assert folders.parse("/a, /b c") == ["/a", "/b c"]
    assert theme.parse("Light") == "light"
    with pytest.raises(ConfigError, match="is not a whole number"):
        seed.parse("seven")


def test_search_finds_words_of_title_meaning_and_range() -> None:
    assert [setting.key for setting in search(SETTINGS, "emulate slow")] == ["offload.link"]
    assert "sampling.top_k" in [setting.key for setting in search(SETTINGS, "likeliest")]
    assert search(SETTINGS, "no such thing") == []


def test_stop_texts_of_the_command_line_stay() -> None:
    settings = Settings(SettingsFile(Path("/nowhere/settings.toml")), {"sampling.stop": Given(["A", "\n"], "--stop")})
    assert settings.sampling().stop == ("A", "\n")


@pytest.mark.parametrize("setting", [setting for setting in SETTINGS if setting.field], ids=lambda setting: setting.key)
def test_one_declaration_makes_option_variable_and_file(path: Path, setting: Setting) -> None:
    value = setting.choices[-1] if setting.choices else _EXAMPLES[setting.kind]
    by_flag = settings_of(path, f"{setting.flag} {value}")
    by_variable = settings_of(path, **{setting.variable: value})
    in_file = settings_of(written(path, f"[{setting.table}]\n{setting.name} = {_as_toml(setting, value)}\n"))
    arrived = [
        getattr(settings.sampling() if setting.is_sampling else settings.engine_config(), setting.field)
        for settings in (by_flag, by_variable, in_file)
    ]
    assert arrived == [arrived[0]] * 3
    assert arrived[0] not in (None, setting.default)


_EXAMPLES = {
    Kind.TEXT: "owner/model",
    Kind.BYTES: "3GiB",
    Kind.SHARE: "25%",
    Kind.RATE: "0.5GB/s",
    Kind.INTEGER: "17",
    Kind.NUMBER: "0.25",
    Kind.TEXTS: "END",
}


def _as_toml(setting: Setting, value: str) -> str:
    return (
        value
        if setting.kind in (Kind.INTEGER, Kind.NUMBER)
        else json.dumps([value] if setting.kind is Kind.TEXTS else value)
    )


def test_a_wrong_value_of_the_command_line_is_told_with_what_it_may_be(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--thinking: 'maybe' is not one of off, on"):
        settings_of(path, "--thinking maybe")
    with pytest.raises(ConfigError, match=r"MOE_CHAT_BACKEND: 'fast' is not one of auto, transformers, ggml"):
        settings_of(path, MOE_CHAT_BACKEND="fast")
    assert settings_of(path, "--backend GGML", MOE_CHAT_BACKEND="fast").engine_config().backend == "ggml"


def test_a_name_that_is_no_text_is_refused_and_the_file_stays(tmp_path: Path) -> None:
    file = SettingsFile(tmp_path / "settings.toml")
    file.write({("model", "name"): "demo"})
    before = file.path.read_bytes()
    with pytest.raises(OSError, match="not UTF-8 text"):
        file.write({("model", "name"): "/models/caf\udce9"})
    assert file.path.read_bytes() == before
