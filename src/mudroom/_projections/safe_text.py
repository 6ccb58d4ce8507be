"""Text that is safe to show: no control characters or secrets, and tool calls in one line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from .._core.events import AnyEvent, PermissionDecided, ToolCallStarted, TurnFinished
from .._core.json_values import map_texts
from .._core.messages import AssistantBlock, AssistantMessage, TextBlock, ToolCallBlock
from .._core.tools import Tool
from .._platform.patterns import compile_later

E = TypeVar("E", bound=AnyEvent)

# For the line that describes a run's last action.
ACTION_LENGTH = 160

_CONTROL_SEQUENCES = compile_later(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor moves
    # Titles, links, device strings. Without its end, such a string would swallow what follows: a
    # file name could hide the message about it.
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)"
    r"|\x1b[ -/]*[0-~]?"  # every other escape
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"  # control characters but tab and line feed
    r"|[\u061c\u200b\u200e\u200f\u202a-\u202e]"  # bidi marks, invisible characters
    r"|[\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_HIDDEN_IN_JSON = compile_later(
    r"[\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
    r"|[\U000e0000-\U000e007f]"
)
_LONE_SURROGATE = compile_later("[\ud800-\udfff]")
# Characters that would be invisible, or look like the marks of `escape_hidden`.
_VISIBLE_TWICE = compile_later(
    r"\\(?=u\{)|\[(?=[0-9]+ (?:blanks|empty lines)\])| (?=\n|\Z)"
    # Blank or zero-width, although they count as printable.
    r"|[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0]"
    r"|[\U000e0100-\U000e01ef]"
)
_LONG_GAP = compile_later(r" {24,}|\n{5,}")
_LINE_BREAKS = compile_later(r"\r\n?|[\u2028\u2029\x85\x0b\x0c]")


def sanitize(text: str) -> str:
    """Remove escapes, invisible marks, and control characters but tab and line feed.

    Lone surrogates become U+FFFD, so the text can always be encoded.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _CONTROL_SEQUENCES.sub("", _LINE_BREAKS.sub("\n", text))
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)


def escape_json(text: str) -> str:
    """Escape what JSON allows in a string but a terminal may obey: C1 codes, bidi marks and so on.

    A parser reads the same value: outside its strings, JSON has no such characters.
    """
    if text.isascii() and "\x7f" not in text:
        return text
    return _HIDDEN_IN_JSON.sub(lambda match: json.dumps(match[0])[1:-1], text)


def sanitize_line(text: str, limit: int = ACTION_LENGTH) -> str:
    """Sanitize a text, make one line of it, and cut it at `limit` characters."""
    return " ".join(sanitize(text[: limit * 4]).split())[:limit]


def escape_hidden(text: str) -> str:
    """Make hidden text visible, so that two different texts never look the same.

    Characters that are not printed, the last blank before a line end, and whatever looks like an
    escape already become code points; long runs of blanks or empty lines become a count. Only a
    tab looks like the four blanks that replace it.
    """

    def count_gap(match: re.Match[str]) -> str:
        kind = "blanks" if match[0][0] == " " else "empty lines"
        return f" [{len(match[0])} {kind}] "

    def escape(match: re.Match[str]) -> str:
        return f"\\u{{{ord(match[0]):x}}}"

    text = _VISIBLE_TWICE.sub(escape, text).replace("\t", "    ")
    text = _LONG_GAP.sub(count_gap, text)
    return "".join(c if c.isprintable() or c == "\n" else f"\\u{{{ord(c):x}}}" for c in text)


def escape_line(text: str) -> str:
    """Make hidden text visible in one line: a line break becomes `\\n`."""
    return escape_hidden(text).replace("\n", "\\n")


def format_arguments(arguments: Mapping[str, Any]) -> str:
    """List all arguments of a call as lines without hidden text.

    Further lines of a text are indented, and text that looks like another value is quoted, so
    that no value looks like another argument.
    """
    return "\n".join(
        f"{escape_line(name)}: {_format_argument(value)}" for name, value in arguments.items()
    )


def _format_argument(value: object) -> str:
    if not isinstance(value, str):
        return escape_line(json.dumps(value, ensure_ascii=False, default=str))
    try:
        json.loads(value)
    except ValueError:
        return escape_hidden(value).replace("\n", "\n    ")
    return escape_line(json.dumps(value, ensure_ascii=False))


def make_call_title(arguments: Mapping[str, Any], tool: Tool | None = None) -> str:
    """Say in one line what a tool call is about; "" if no argument is a text.

    Arguments:
        arguments: under their names in the tool's parameters.
        tool: None for an unknown tool; the first text is the title then.
    """
    key = tool and (tool.title_argument or tool.rule_argument or tool.path_argument)
    for value in (arguments.get(key) if key else None, *arguments.values()):
        if value and isinstance(value, str):
            return sanitize_line(value)
    return ""


def describe_call(call: ToolCallBlock, title: str = "") -> str:
    """Describe a tool call in one line: "read src/x.py". Earlier versions recorded no title."""
    return sanitize_line(f"{call.name} {title or make_call_title(call.arguments)}")


def redact_answer(
    answer: AssistantMessage,
    redact: Callable[[str], str],
    keeps: Callable[[AssistantBlock], bool] = lambda block: False,
) -> AssistantMessage:
    """Remove secrets from an answer; without any, return the same object.

    `keeps` selects the blocks that must stay as they are.
    """
    blocks = answer.content
    if not _has_secret(blocks, redact):
        return answer
    joined = _join_split_secrets(blocks, redact)
    content = tuple(block if keeps(block) else _redact_block(block, redact) for block in joined)
    return answer if content == blocks else replace(answer, content=content)


def _has_secret(blocks: Iterable[AssistantBlock], redact: Callable[[str], str]) -> bool:
    """Return whether any text in the blocks has a secret, usually with a single search."""
    texts: list[str] = []
    for block in blocks:
        if isinstance(block, ToolCallBlock):
            _add_texts(block.arguments, texts)
            texts.append(block.malformed)
        elif isinstance(block, TextBlock) and block.is_continuation and texts:
            texts[-1] += block.text
        else:
            texts.append(block.text)
    joined = "\0".join(texts)
    return redact(joined) != joined


def _add_texts(value: object, texts: list[str]) -> None:
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, dict):
        for key, item in cast("dict[str, object]", value).items():
            texts.append(key)
            _add_texts(item, texts)
    elif isinstance(value, list | tuple):
        for item in cast("Sequence[object]", value):
            _add_texts(item, texts)


def _join_split_secrets(
    blocks: Sequence[AssistantBlock], redact: Callable[[str], str]
) -> Iterator[AssistantBlock]:
    """Yield the blocks, joining those of one text if a secret may span several."""
    for _, group in groupby(blocks, key=lambda block: isinstance(block, TextBlock)):
        texts = list(group)
        joined = "".join([block.text for block in texts if isinstance(block, TextBlock)])
        if redact(joined) == joined:
            yield from texts
        else:
            yield TextBlock(joined)


def _redact_block(block: AssistantBlock, redact: Callable[[str], str]) -> AssistantBlock:
    if isinstance(block, ToolCallBlock):
        arguments = cast("dict[str, Any]", map_texts(block.arguments, redact, keys=True))
        malformed = redact(block.malformed)
        if arguments == block.arguments and malformed == block.malformed:
            return block
        return replace(block, arguments=arguments, malformed=malformed)
    text = redact(block.text)
    return block if text == block.text else replace(block, text=text)


def redact_event(event: E, redact: Callable[[str], str]) -> E:
    """Make an event fit to show, without the secrets that the record has to keep.

    The record keeps the exact arguments of the calls that act, because a resumed run must make the
    same calls, and reasoning that its provider signed.

    Arguments:
        redact: returns a text without secrets, such as a `Redactor`.

    Example:
        import os

        redact = Redactor(os.environ)
        session.watch(lambda event: print(redact_event(event, redact)))
    """
    if isinstance(event, TurnFinished):
        message = redact_answer(event.message, redact)
        return event if message is event.message else replace(event, message=message)
    if isinstance(event, ToolCallStarted):
        if not _has_secret((event.call, TextBlock(event.title)), redact):
            return event
        return replace(event, call=_redact_block(event.call, redact), title=redact(event.title))
    if isinstance(event, PermissionDecided):
        return replace(
            event,
            policy_reason=redact(event.policy_reason),
            approver_reason=redact(event.approver_reason),
            rule=redact(event.rule),
            command_part=redact(event.command_part),
        )
    return event
