"""The colours of code, as roles of the theme: the same while an answer is written and once it is finished."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pygments.token import Comment, Keyword, Name, Number, Operator, String, Token  # type: ignore[import-untyped]
from rich.style import Style
from rich.syntax import ANSISyntaxTheme

ROLES: dict[Any, str] = {
    Token: "foreground",
    Comment: "quiet",
    Keyword: "primary",
    Operator: "quiet",
    Name.Function: "secondary",
    Name.Class: "secondary",
    Name.Builtin: "secondary",
    String: "success",
    Number: "accent",
}
"""Token types of the highlighter -> variables of the theme."""


def finished_theme(variables: Mapping[str, str]) -> ANSISyntaxTheme:
    """The colours for finished answers, of the theme with these variables."""
    return ANSISyntaxTheme({token: Style(color=variables[role]) for token, role in ROLES.items()})
