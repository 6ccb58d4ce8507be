"""Tool calls that arrive as text because the server was started without a parser for them.

Nothing executes such a call, so an answer that ends with one must not count as a run's result.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, cast

import msgspec

from ..._core.messages import AssistantMessage, StopReason
from ..._platform.patterns import compile_later

# Stop reason of such an answer; the model reads it.
WRITTEN_CALL = "it holds a tool call as text, which nobody runs: use the interface for tool calls"

# The call markup of Hermes and Qwen, Llama, Anthropic and MiniMax, Mistral, Kimi, DeepSeek,
# Cohere, LFM and gpt-oss.
_OPENERS = compile_later(
    r"(?m)^[^\S\n]*(<tool_calls?>|<function=|<function_calls?>|<\w*:?invoke name=|<\w+:tool_call>"
    r"|\[TOOL_CALLS\]|<\|tool_calls?\|>|<\|python_tag\|>|<\|tool_calls_section_begin\|>"
    r"|<\|tool_call_begin\|>|<｜tool▁calls?▁begin｜>|<\|START_ACTION\|>|<\|tool_call_start\|>"
    r"|<\|channel\|>commentary to=|```tool_call\b)"
)
_NAME = compile_later(
    r'(?:"(?:tool_)?name"\s*:\s*"|<function=|\bname="|functions\.|\[TOOL_CALLS\]\s*|<tool_call>\s*'
    r"|<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?|<\|tool_call_start\|>\[?)([\w.-]+)"
)
_ENDS = (">", "}", "]", ")", "```")


def find_written_call(answer: AssistantMessage, tools: Collection[str]) -> str:
    """Find the tool that an answer calls in text; "" for none.

    Markup inside a code block, or followed by prose, is an answer about calls.

    Arguments:
        tools: names of the offered tools on the wire.
    """
    text = answer.text.strip()
    if answer.stop_reason is not StopReason.END or not text.endswith(_ENDS):
        return ""
    if text.startswith("{"):
        return _read_bare_call(text, tools)
    opener = _OPENERS.search(text)
    if opener is None or text.count("```", 0, opener.start(1)) % 2:
        return ""
    names = (match[1] for match in re.finditer(_NAME.pattern, text[opener.start(1) :]))
    return next((name for name in names if name in tools), "")


def _read_bare_call(text: str, tools: Collection[str]) -> str:
    """Read a bare JSON object of a tool's name and arguments, as Llama writes calls."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return ""
    fields = cast("dict[str, Any]", value)
    kinds: dict[str, object] = {name: type(item) for name, item in fields.items() if name != "type"}
    is_call = kinds in ({"name": str, "arguments": dict}, {"name": str, "parameters": dict})
    return fields["name"] if is_call and fields["name"] in tools else ""
