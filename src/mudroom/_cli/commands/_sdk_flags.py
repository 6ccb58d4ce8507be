"""Separates the flags with which agent SDKs start their CLI from mudroom's own flags."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import click
from msgspec import Struct, field

_USED_VALUES = (
    "--input-format",
    "--system-prompt",
    "--system-prompt-file",
    "--append-system-prompt",
    "--tools",
    "--permission-prompt-tool",
    "--settings",
    "--setting-sources",
    "--mcp-config",
    "--resume-session-at",
)
# Listed because they take a value, which must not be read as a prompt.
_UNUSED_VALUES = (
    "--add-dir",
    "--betas",
    "--debug-file",
    "--effort",
    "--managed-settings",
    "--max-thinking-tokens",
    "--plugin-dir-no-mcp",
    "--resume-drops-turn",
    "--task-budget",
    "--thinking",
    "--thinking-display",
)
_VALUES = (*_USED_VALUES, *_UNUSED_VALUES)
_USED_SWITCHES = (
    "--include-partial-messages",
    "--include-hook-events",
    "--replay-user-messages",
    "--allow-dangerously-skip-permissions",
    "--strict-mcp-config",
    "--await-initialize",
    "--verbose",
)
# Permission modes that mudroom does not have, and what replaces each.
_MODES = {"auto": "default", "delegate": "default", "manual": "default"}


class SdkFlags(Struct):
    """Flags of the agent SDKs.

    Arguments:
        values: the values of each flag that takes one, in order.
        switches: the flags without a value.
        rest: the arguments for mudroom's own flags.
        notices: for the user: flags that are not used.
    """

    values: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    switches: list[str] = field(default_factory=list[str])
    rest: list[str] = field(default_factory=list[str])
    notices: list[str] = field(default_factory=list[str])


def is_started_by_sdk(arguments: Sequence[str]) -> bool:
    """Return whether the arguments ask for the control protocol."""
    wanted = ("--input-format", "stream-json")
    return "=".join(wanted) in arguments or wanted in pairwise(arguments)


def separate_sdk_flags(arguments: Sequence[str], command: click.Command) -> SdkFlags:
    """Separate the flags of the SDKs from those of a command. Unknown ones are notices.

    A value may follow its flag after "=" or as the next argument.
    """
    flags = SdkFlags()
    options = {
        flag: option
        for option in command.params
        if isinstance(option, click.Option)
        for flag in (*option.opts, *option.secondary_opts)
    }
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        name, equals, value = argument.partition("=")
        if name in _VALUES:
            value = value if equals or not waiting else waiting.pop(0)
            flags.values.setdefault(name, []).append(value)
            if name in _UNUSED_VALUES:
                flags.notices.append(f"not used by mudroom: {name}")
        elif name in _USED_SWITCHES:
            flags.switches.append(name)
        elif name in options or not name.startswith("-"):
            takes_value = name in options and _takes_value(options[name])
            value = waiting.pop(0) if takes_value and not equals and waiting else value
            flags.rest += _replace_mode(name, argument, value, takes_value=takes_value)
        else:
            # An unknown flag may take a value; a word after it is more likely that than a prompt.
            if not equals and waiting and not waiting[0].startswith("-"):
                waiting.pop(0)
            flags.notices.append(f"not used by mudroom: {name}")
    flags.notices = list(dict.fromkeys(flags.notices))
    return flags


def _takes_value(option: click.Option) -> bool:
    """Return whether the next argument is always the option's value."""
    return not option.is_flag and not isinstance(option.flag_value, str)


def _replace_mode(name: str, argument: str, value: str, *, takes_value: bool) -> list[str]:
    """Return the arguments of one of mudroom's flags, with a permission mode that it has."""
    if not takes_value:
        return [argument]
    return [name, _MODES.get(value, value) if name == "--permission-mode" else value]
