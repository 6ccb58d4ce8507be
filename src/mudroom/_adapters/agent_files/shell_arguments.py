"""Puts a slash command's arguments into shell commands: always as data, never as syntax."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

from .prompt_pieces import ShellText

# Means itself in every part of a shell command.
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./ -]*")
_COMMENT_AFTER = " \t\n;&|("
_UNSAFE = (
    "the arguments have characters that a shell interprets, and the command has a place for them in"
    " a comment, a here-document or a command inside the command"
)


def fill_command(
    command: str,
    source: str,
    pattern: re.Pattern[str],
    find_value: Callable[[re.Match[str]], str],
    *,
    splits: Callable[[re.Match[str]], bool] = lambda _: False,
) -> ShellText:
    """Return a shell command with values in place of its placeholders.

    Each value is quoted for where it goes: outside quotation marks, or inside either kind. Where
    that is unclear, only values without special characters are allowed.

    Arguments:
        source: the command as the file has it.
        find_value: returns the value for a placeholder.
        splits: whether a value outside quotation marks is several words.
    """
    problem = ""
    filled = ""
    end = 0
    for match in pattern.finditer(command):
        filled += command[end : match.start()]
        end = match.end()
        value = find_value(match)
        place = _find_place(command[: match.start()])
        if value == match[0]:  # not filled in, such as the `$1` of awk
            filled += value
        elif place is None:
            problem = problem or ("" if _PLAIN.fullmatch(value) else _UNSAFE)
            filled += value
        elif place == "'":
            filled += value.replace("'", "'\\''")
        elif place == '"':
            filled += re.sub(r'([\\"$`])', r"\\\1", value)
        elif value:
            words = split_arguments(value) if splits(match) else [value]
            filled += " ".join(map(shlex.quote, words))
    return ShellText(filled + command[end:], source, problem)


def _find_place(before: str) -> str | None:
    """Return the quotation mark that is open where the text ends, "" for none.

    None if the text contains something whose end is hard to find, such as `$(`.
    """
    quote = ""
    position = 0
    while position < len(before):
        letter = before[position]
        following = before[position : position + 2]
        if quote != "'" and (letter == "`" or following in ("$(", "<<", "<(", ">(", "$'")):
            return None
        if not quote and letter == "#" and before[position - 1 : position] in ("", *_COMMENT_AFTER):
            return None
        if letter == "\\" and quote != "'":
            position += 1
        elif letter == quote:
            quote = ""
        elif letter in "'\"" and not quote:
            quote = letter
        position += 1
    # After a single backslash the first letter of the value would lose its own quotation mark.
    return None if position > len(before) else quote


def split_arguments(text: str) -> list[str]:
    """Split arguments as a shell does; at blanks if a quotation mark is never closed."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
