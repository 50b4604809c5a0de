"""Where things are kept. `MOE_CHAT_HOME` moves all but the cache, which is large: `MOE_CHAT_CACHE` moves that."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

APP_NAME = "moe-chat"


@dataclass(frozen=True, slots=True)
class AppPaths:
    """The folders of one installation. Nothing is created until something is written."""

    data_dir: Path
    log_dir: Path
    cache_dir: Path
    config_dir: Path

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> AppPaths:
        """The user's own folders, or those the environment names."""
        variables = os.environ if environment is None else environment
        named = variables.get("MOE_CHAT_CACHE")
        cache = Path(named).expanduser() if named else platformdirs.user_cache_path(APP_NAME)
        if home := variables.get("MOE_CHAT_HOME"):
            return cls(Path(home) / "data", Path(home) / "log", cache, Path(home) / "config")
        config = platformdirs.user_config_path(APP_NAME)
        return cls(platformdirs.user_data_path(APP_NAME), platformdirs.user_log_path(APP_NAME), cache, config)

    @property
    def settings_file(self) -> Path:
        """What the user has set."""
        return self.config_dir / "settings.toml"

    @property
    def chats_db(self) -> Path:
        """The chat database."""
        return self.data_dir / "chats.db"

    @property
    def prompt_history(self) -> Path:
        """What was typed and sent, for recalling it."""
        return self.data_dir / "prompts.jsonl"

    @property
    def profiles_dir(self) -> Path:
        """Where the engine keeps domain profiles, a folder a model."""
        return self.data_dir / "profiles"

    @property
    def instance_lock(self) -> Path:
        """The file that the first running instance holds locked."""
        return self.data_dir / "instance.pid"

    @property
    def app_log(self) -> Path:
        """Where the app's unexpected errors go."""
        return self.log_dir / "moe-chat.log"

    @property
    def engine_log(self) -> Path:
        """Everything the engine's process prints."""
        return self.log_dir / "engine.log"

    def listed(self) -> tuple[tuple[str, Path], ...]:
        """Every place by name, for a person."""
        return (
            ("settings", self.settings_file),
            ("chats", self.chats_db),
            ("profiles", self.profiles_dir),
            ("app log", self.app_log),
            ("engine log", self.engine_log),
            ("cache", self.cache_dir),
        )
