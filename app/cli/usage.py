"""The exit codes of commands, and the error of wrong use."""

from __future__ import annotations

from engine.errors import ConfigError

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130


class UsageError(ConfigError):
    """Arguments that are missing, or contradict each other."""

    title = "Command line"
