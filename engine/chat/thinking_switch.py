"""Whether a chat template lets the user say how much the model thinks, and how: found out by rendering it.

A variable counts when it changes the prompt; no list of models is needed. Sources of the variables' names: the model
cards of Qwen3 and GLM (enable_thinking), DeepSeek-V3.1 and Granite (thinking), gpt-oss (reasoning_effort).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from engine.api import Message
from engine.chat.chat_template import ChatTemplate

OFF, ON = "off", "on"
_SWITCHES = ("enable_thinking", "thinking")
_EFFORT = "reasoning_effort"
_LADDER = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_USUAL = ("low", "medium", "high")
_QUESTION = (Message("user", "hello"),)

Choices = Mapping[str, Mapping[str, object]]
"""Choice -> the template's variables that make it; in the order to show, least thinking first."""


def find_choices(template: ChatTemplate) -> Choices:
    """What the user may choose; empty where the template has no such switch.

    Raises UnsupportedModelError when the template exceeds its limits or leaves out what the user says, WaitCancelled.
    """
    if not template:
        return {}
    switch = next((name for name in _SWITCHES if name in template.text and _is_switch(template, name)), None)
    on: dict[str, object] = {switch: True} if switch else {}
    efforts = _efforts(template, on) if _EFFORT in template.text else []
    off: dict[str, Mapping[str, object]] = {OFF: {switch: False}} if switch else {}
    if efforts:
        return {**off, **{effort: {**on, _EFFORT: effort} for effort in efforts}}
    return {**off, ON: on} if switch else {}


def _is_switch(template: ChatTemplate, name: str) -> bool:
    prompts = [template.probe(_QUESTION, {name: value}) for value in (False, True)]
    return None not in prompts and prompts[0] != prompts[1]


def _efforts(template: ChatTemplate, on: Mapping[str, object]) -> list[str]:
    """The efforts that the template names, else the usual ones; those it takes and tells apart."""
    named = [effort for effort in _LADDER if re.search(rf"""['"]{effort}['"]""", template.text)]
    prompts: dict[str, str] = {}
    for effort in named if len(named) > 1 else _USUAL:
        prompt = template.probe(_QUESTION, {**on, _EFFORT: effort})
        if prompt is not None and prompt not in prompts.values():
            prompts[effort] = prompt
    return list(prompts) if len(prompts) > 1 else []
