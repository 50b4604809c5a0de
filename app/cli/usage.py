"""Wrong use of the command line: its error, and its exit code."""

from __future__ import annotations

from engine.errors import ConfigError

EXIT_USAGE = 2


class UsageError(ConfigError):
    """Arguments that are missing, or contradict each other."""

    title = "Command line"
