"""Commands inside commands: wrappers like `timeout 5`, and text that programs may run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .program_table import EXECUTING_FLAG, GIT_OPTIONS_WITH_VALUE, RUNNERS, TEXT_RUNNERS
from .shell_words import SimpleCommand, Word

# More wrappers around a command than anyone writes.
_MAX_WRAPPERS = 20
_DURATION = re.compile(r"\d+(\.\d+)?[smhd]?")
_QUOTE = re.compile("['\"`]")
# Quote -> the contents of a literal that starts with it. Possessive, so that hostile text cannot
# make the match slow.
_LITERALS = {
    "'": re.compile(r"(?:\\.|[^'\\\n])*+"),
    '"': re.compile(r"(?:\\.|[^\"\\\n])*+"),
    "`": re.compile(r"[^`]*+"),
}


def get_program_name(words: Sequence[Word]) -> str:
    """Find the program's name without its folder, "" if only bash can tell."""
    return words[0].value.rpartition("/")[2] if words and words[0].value else ""


def strip_wrappers(words: Sequence[Word]) -> Sequence[Word]:
    """Strip wrappers that only affect time, priority or buffering from a command.

    `xargs` adds a word of unknown value. Without a wrapper, the words are returned unchanged.
    """
    for _ in range(_MAX_WRAPPERS):
        inner = _unwrap(words)
        if inner is None:
            return words
        words = inner
    return words


def _unwrap(words: Sequence[Word]) -> Sequence[Word] | None:
    values = [word.value for word in words]
    start = _find_wrapped_start(values)
    if start is None or start >= len(words):
        return None
    program = values[start]
    if program is None or (program or "-").startswith("-"):
        return None
    if values[0] == "xargs":
        return [*words[start:], Word("…", None)]
    return words[start:]


def _find_wrapped_start(values: Sequence[str | None]) -> int | None:
    match values[0] if values else None:
        case "nohup" | "command" | "noglob":
            return 1
        case "time":
            return 2 if values[1:2] == ["-p"] else 1
        case "timeout":
            at = _skip_options(
                values,
                with_value={"-k", "-s"},
                single={"--foreground", "--preserve-status", "-v", "-p"},
                joined=r"--(kill-after|signal)=\w+",
            )
            has_duration = at >= len(values) or _DURATION.fullmatch(values[at] or "")
            return at + 1 if has_duration else None
        case "nice":
            return _skip_options(
                values, with_value={"-n"}, joined=r"-\d+|-n-?\d+|--adjustment=-?\d+"
            )
        case "stdbuf":
            return _skip_options(
                values,
                with_value={"-i", "-o", "-e"},
                joined=r"-[ioe]\w+|--(input|output|error)=\w+",
            )
        case "xargs":
            return _skip_options(
                values,
                with_value={"-n", "-P", "-L"},
                single={"-0", "-r", "-t", "--null", "--no-run-if-empty"},
                joined=r"-[nPL]\d+",
            )
        case _:
            return None


def _skip_options(
    values: Sequence[str | None],
    *,
    with_value: set[str],
    joined: str,
    single: frozenset[str] | set[str] = frozenset(),
) -> int:
    """Find the index of the first word that is not an option.

    The value of an option in `with_value` is the next word; options that match `joined` contain
    theirs; those in `single` have none.
    """
    at = 1
    while at < len(values):
        value = values[at] or ""
        if value in with_value:
            at += 2
        elif value in single or re.fullmatch(joined, value):
            at += 1
        else:
            break
    return at


def expand_commands(words: Sequence[Word]) -> Iterator[tuple[Word, ...]]:
    """Yield a command and every command its words may make it run.

    Deny and ask rules are compared with all of these.
    """
    yield tuple(words)
    full_name = get_program_name(words)
    name = strip_version(full_name)
    if name == "git":
        yield (Word("git", "git"), *find_git_command(words))
    is_runner = not name or name in RUNNERS or full_name in RUNNERS
    for at in range(1, len(words)):
        value = words[at].value
        if not value or value.startswith("-"):
            continue
        if is_runner or EXECUTING_FLAG.fullmatch(words[at - 1].value or ""):
            yield tuple(words[at:])


def find_git_command(words: Sequence[Word]) -> Sequence[Word]:
    """Find the words of a git command, starting with its subcommand."""
    at = 1
    while at < len(words) and (words[at].value or "").startswith("-"):
        at += 2 if words[at].value in GIT_OPTIONS_WITH_VALUE else 1
    return words[at:]


def strip_version(name: str) -> str:
    return re.sub(r"(?<![\d.])[\d.]++$", "", name)


def _list_literals(code: str) -> Iterator[str]:
    """Yield the texts in quotes, in linear time."""
    # After an unclosed quote there is no other literal of its kind up to where the search stopped,
    # since its end would have closed the first one. So each position is read once per kind.
    unclosed_up_to = dict.fromkeys(_LITERALS, 0)
    at = 0
    while opening := _QUOTE.search(code, at):
        quote, at = opening[0], opening.end()
        if at <= unclosed_up_to[quote]:
            continue
        text = _LITERALS[quote].match(code, at)
        end = text.end() if text else at
        if code.startswith(quote, end):
            yield code[at:end]
            at = end + 1
        else:
            unclosed_up_to[quote] = end


# Nested settings (`a=b=c`) whose whole rest is judged.
_MAX_SETTINGS = 50


def extract_texts(command: SimpleCommand) -> Iterator[str]:
    """Yield pieces of a command that may themselves be run as a command.

    These are texts for `sh -c`, values of settings, quoted strings in code, and commands for a
    remote shell.
    """
    full_name = get_program_name(command.words)
    name = strip_version(full_name)
    if name and name not in TEXT_RUNNERS and full_name not in TEXT_RUNNERS:
        return
    for value in filter(None, (word.value for word in command.words[1:])):
        pieces = value.split("=")
        for at in range(1, min(len(pieces), _MAX_SETTINGS)):
            yield "=".join(pieces[at:]).lstrip("!")
        if len(pieces) > _MAX_SETTINGS:
            # Every ending of such a word would take quadratic time; a command is in one piece.
            yield from (piece.lstrip("!") for piece in pieces[_MAX_SETTINGS:])
        if re.search(r"[\s;&|(`'\"]", value):
            literals = list(_list_literals(value))
            yield value
            yield from literals
            yield " ".join(literals)
        if name == "sed":
            yield from re.findall(r"e\s+(.+)", value)
            yield from value.split("/")
