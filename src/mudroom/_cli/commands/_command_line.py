"""The table of commands, and the choice of a command line's command, perhaps after options.

A command's module is imported when the command is looked up.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import cast

import click

from ..._platform.patterns import compile_later
from ...errors import UsageError

# Commands of other programs -> mudroom's nearest equivalent.
_COMMANDS = {
    "login logout auth connect setup-token": "Keys are environment variables: see mudroom models.",
    "update upgrade install": "Update mudroom with the program that installed it, such as pipx.",
    "exec ask query": 'Use mudroom -p "PROMPT".',
    "sessions history": "Use mudroom runs.",
    "chat": "mudroom alone opens the interactive prompt.",
    "skills": "Start mudroom and type /skills.",
    "stats usage": "mudroom runs lists tokens; /cost at the prompt shows costs.",
    "vis ui web": "Use mudroom view.",
}
_NEAREST_COMMANDS = {name: text for names, text in _COMMANDS.items() for name in names.split()}
# Flags of other programs. Some are mudroom's own flags in a session that an agent SDK starts.
_NEAREST_FLAGS = {
    "--yolo": "--dangerously-skip-permissions",
    "--full-auto": "--permission-mode acceptEdits",
    "--system-prompt": "--agent",
    "--append-system-prompt": "--agent",
}

_BARE_WORD = compile_later(r"[a-z][a-z0-9_-]*")
_WORDS_SHOWN = 20
_NAMES_SUGGESTED = 3


class _TextType(click.types.StringParamType):
    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Reject blank text, such as that of an unset shell variable."""
        text = super().convert(value, param, ctx)
        if not text.strip():
            self.fail("it is blank. Give a value, or leave it out.", param, ctx)
        return text


def reject_blank_texts(commands: Iterable[click.Command]) -> None:
    """Make commands and their subcommands reject blank options and arguments.

    Text of type UNPROCESSED, such as a prompt, may be blank.
    """
    for command in commands:
        for parameter in command.params:
            if parameter.type is click.STRING:
                parameter.type = _TextType()
        if isinstance(command, click.Group):
            reject_blank_texts(command.commands.values())


def apply_leading_options(
    arguments: Sequence[str], root: click.Command, commands: Mapping[str, click.Command]
) -> list[str]:
    """Apply options before a command: `-C DIR runs` becomes `runs -C DIR`.

    If the command has no -C, DIR becomes the process's current folder. Raises UsageError for any
    other option that the command lacks.
    """
    if not any(argument in commands for argument in arguments[1:]):
        return list(arguments)
    parser = root.make_parser(click.Context(root))
    # Stop at the first word, which may be the command.
    parser.allow_interspersed_args = False
    try:
        values, _, order = parser.parse_args(list(arguments))
    except click.UsageError:
        return list(arguments)  # the root command reports it
    words = values.get("words")
    rest = list(cast("tuple[str, ...]", words)) if isinstance(words, tuple) else []
    options = [item for item in dict.fromkeys(order) if isinstance(item, click.Option)]
    if not rest or rest[0] not in commands or any(_is_root_only(option) for option in options):
        return list(arguments)
    command, name = _find_leaf(rest, commands)
    known = {option for parameter in command.params for option in parameter.opts}
    for option in options:
        flag = option.opts[-1]
        value = values[str(option.name)]
        texts = cast("list[str]", value if option.multiple else [value])
        if known.intersection(option.opts):
            rest += [
                part for text in texts for part in ([flag] if option.is_flag else [flag, text])
            ]
        elif option.name == "cwd":
            _enter_folder(texts[0])
        else:
            raise UsageError(
                f"{name} has no option {flag}", remedy=f"Leave it out; see mudroom help {name}."
            )
    return rest


def describe_usage_error(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = context.command_path.split()[1:] if context else []
    remedy = f"See {' '.join(['mudroom help', *command])}."
    if isinstance(error, click.NoSuchOption):
        message = f"unknown option {error.option_name!r}"
        name = error.option_name
        options = context.command.params if context else []
        known = [flag for option in options for flag in option.opts if flag.startswith("--")]
        near = [flag for flag in known if flag.startswith(name)] or error.possibilities or []
        other = _NEAREST_FLAGS.get(name)
        if other and other.split()[0] in known:
            near = [other]
        if not command and not near:
            remedy = f'Put -- before a prompt that begins with a dash: mudroom -- "-…". {remedy}'
    elif isinstance(error, click.NoSuchCommand):
        message = f"unknown command {error.command_name!r}"
        near = error.possibilities or []
    else:
        message = error.format_message().rstrip(".")
        message = message[:1].lower() + message[1:]
        near = []
    return (
        f"{message}. "
        + (f"Did you mean {' or '.join(near[:_NAMES_SUGGESTED])}? " if near else "")
        + remedy
    )


def _is_root_only(option: click.Option) -> bool:
    """Return whether an option asks for help, the version, or the answer to a prompt."""
    return option.is_eager or option.name in ("version", "print_prompt")


def _find_leaf(
    words: Sequence[str], commands: Mapping[str, click.Command]
) -> tuple[click.Command, str]:
    name = words[0]
    command = commands[name]
    for word in words[1:]:
        if not isinstance(command, click.Group) or word not in command.commands:
            break
        command = command.commands[word]
        name = f"{name} {word}"
    return command, name


def _enter_folder(folder: str) -> None:
    from ..actions.load_settings import require_folder

    require_folder(folder)
    os.chdir(folder)


def reject_unknown_command(words: Sequence[str], commands: Iterable[str]) -> None:
    """Raise UsageError if a command line without -p begins with an unknown command."""
    # A prompt is one quoted argument of several words, so a bare word is a mistyped command.
    if not words or not _BARE_WORD.fullmatch(words[0]):
        return
    import difflib

    nearest = _NEAREST_COMMANDS.get(words[0])
    similar = difflib.get_close_matches(words[0], commands, n=1, cutoff=0.6)
    hint = f"Did you mean {similar[0]}?" if similar else "mudroom help lists the commands."
    hint = nearest or hint
    prompt = " ".join(words[:_WORDS_SHOWN])
    raise UsageError(
        f"unknown command {words[0]!r}",
        remedy=f'{hint} To ask it as a prompt: mudroom -p "{prompt}"',
    )


# Module of this folder -> the names in its `COMMANDS`, in the order of the help.
MODULES = {
    "sessions": "runs show resume rename delete export record replay journal view",
    "permissions": "permissions trust",
    "programs": "mcp hooks plugins",
    "serve": "acp serve",
    "agents": "agents",
    "batch": "batch",
    "fleet": "fleet",
    "board": "board",
    "workspaces": "workspaces",
    "setup": "models doctor completion config init",
    "root": "help",
}


class CommandTable(Mapping[str, click.Command]):
    def __init__(self) -> None:
        self._modules = {name: module for module in MODULES for name in MODULES[module].split()}
        self._commands: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._commands:
            module = import_module(f"{__package__}.{self._modules[name]}")
            command: click.Command = module.COMMANDS[name]
            reject_blank_texts([command])
            self._commands[name] = command
        return self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __contains__(self, name: object) -> bool:
        # Avoids importing the command.
        return name in self._modules


ALL_COMMANDS = CommandTable()
