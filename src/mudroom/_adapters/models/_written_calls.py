"""Finds tool calls that arrive as text because the server was started without a parser for them.

Nothing executes such a call, so an answer that ends with one must not count as a run's result.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, cast

import msgspec

from ..._core.messages import AssistantMessage, StopReason
from ..._platform.patterns import compile_later

# The stop reason of such an answer, which the model reads.
WRITTEN_CALL = "it holds a tool call as text, which nobody runs: use the interface for tool calls"

# The call markup of Hermes and Qwen, Llama, Anthropic and MiniMax, Mistral, Kimi, DeepSeek (two),
# Cohere, LFM, gpt-oss, Gemma (three) and of prompts in the style of ReAct.
_OPENERS = compile_later(
    r"(?m)^[^\S\n]*(<tool_calls?>|<function=|<function_calls?>|<\w*:?invoke name=|<\w+:tool_call>"
    r"|\[TOOL_CALLS\]|<\|tool_calls?\|>|<\|python_tag\|>|<\|tool_calls_section_begin\|>"
    r"|<\|tool_call_begin\|>|<｜tool▁calls?▁begin｜>|<\|START_ACTION\|>|<\|tool_call_start\|>"
    r"|<｜DSML｜\w+>|<\|channel\|>commentary to=|<\|tool_call>call:|<start_function_call>"
    r"|<tool_use>|```tool_(?:call|code)\b|Action:(?=[^\n]*\nAction Input:))"
)
_NAME = compile_later(
    r'(?:"(?:tool_)?name"\s*:\s*"|<function=|\bname="|functions\.|\[TOOL_CALLS\]\s*|<tool_call>\s*'
    r"|<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?|<\|tool_call_start\|>\[?|\bcall:|<name>"
    r"|```tool_code\s+(?:print\()?(?:default_api\.)?|Action:[^\S\n]*)([\w.-]+)"
)
# Calls in Python's form, as Llama 4 writes them.
_PYTHON_CALL = compile_later(r"\[\s*([\w.-]+)\(")
_FENCES = ("```json\n", "```\n")
_ENDS = (">", "}", "]", ")", "```")


def find_written_call(answer: AssistantMessage, tools: Collection[str]) -> str:
    """Find the tool that an answer calls in text, by its name on the wire; "" for none.

    Markup inside a code block, or followed by prose, is an answer about calls.
    """
    text = answer.text.strip()
    if answer.stop_reason is not StopReason.END or not text.endswith(_ENDS):
        return ""
    bare = _remove_fence(text)
    if bare.startswith(("{", "[")) and (name := _read_bare_call(bare)) in tools:
        return name
    opener = _OPENERS.search(text)
    if opener is None or text.count("```", 0, opener.start(1)) % 2:
        return ""
    names = (match[1] for match in re.finditer(_NAME.pattern, text[opener.start(1) :]))
    return next((name for name in names if name in tools), "")


def _remove_fence(text: str) -> str:
    """Unwrap an answer that is a single JSON code block; return other text unchanged."""
    for fence in _FENCES:
        if text.startswith(fence) and text.count("```") == 2:
            return text[len(fence) : -3].strip()
    return text


def _read_bare_call(text: str) -> str:
    """Read calls without markup, as Llama writes them; "" if the text is anything else."""
    if text.endswith(")]") and (match := _PYTHON_CALL.match(text)):
        return match[1]
    try:
        return _find_name(msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return ""


def _find_name(value: object) -> str:
    """Find the tool in a call, in calls, or in a message with calls; "" for other values."""
    if isinstance(value, list):
        names = [_find_name(each) for each in cast("list[object]", value)]
        return names[0] if names and all(names) else ""
    if not isinstance(value, dict):
        return ""
    fields = cast("dict[str, Any]", value)
    fields = {name: item for name, item in fields.items() if name not in ("type", "id")}
    match fields:
        case {"tool_calls": inner} | {"function": dict() as inner} if len(fields) == 1:
            return _find_name(inner)
        case {"name": str() as name, "arguments": given} | {
            "name": str() as name,
            "parameters": given,
        } if len(fields) == 2:
            is_call = isinstance(given, dict) or str(given).startswith("{")
            return name if is_call else ""
        case _:
            return ""
