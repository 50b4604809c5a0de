"""Where things are kept. `MOE_CHAT_HOME` moves all but the cache, which is large: `MOE_CHAT_CACHE` moves that."""

from __future__ import annotations

import contextlib
import os
import stat
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
    def presets_dir(self) -> Path:
        """The user's presets, a file each."""
        return self.data_dir / "presets"

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
            ("presets", self.presets_dir),
            ("profiles", self.profiles_dir),
            ("app log", self.app_log),
            ("engine log", self.engine_log),
            ("cache", self.cache_dir),
        )


def private_folder(folder: Path) -> None:
    """Make a folder that only its owner reads, or make it so. Raises OSError where it cannot be made."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _tighten(folder)


def private_file(path: Path) -> None:
    """Make an empty file that only its owner reads, or make it so. Raises nothing: the first write tells."""
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        _tighten(path)


def make_private(folder: Path) -> None:
    """Make everything in a folder, and the folder, readable by its owner only. Raises nothing."""
    for directory, _, names in os.walk(folder):
        for path in (Path(directory), *(Path(directory, name) for name in names)):
            _tighten(path)


def _tighten(path: Path) -> None:
    """Take away what others may do with a file or folder of one's own."""
    with contextlib.suppress(OSError):
        status = path.lstat()
        if status.st_mode & 0o077 and (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
            path.chmod(stat.S_IMODE(status.st_mode) & 0o700)
