"""The unnamed command with its flags, and the `help` command.

Slow imports happen inside the commands, so that mudroom starts quickly.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import click
from msgspec import Struct, field

from ...errors import UnknownName, UsageError
from ._command_line import ALL_COMMANDS, reject_blank_texts, reject_unknown_command
from ._options import (
    AMOUNT,
    CONTEXT_SETTINGS,
    COUNT,
    flag_option,
    folder_option,
    format_option,
    mode_option,
    no_color_option,
    plugin_dir_option,
    quiet_option,
    rules_options,
    sandbox_option,
    store_option,
    switch_option,
    value_option,
    verbose_option,
    worker_option,
)

if TYPE_CHECKING:
    from click.parser import _OptionParser

# The value of `-p` and `--resume` given without one; no argument can contain a NUL.
WITHOUT_VALUE = "\0"

PRINT_FLAGS = ("-p", "--print", "--prompt")

EXAMPLES = (
    'mudroom -p "find what testing framework this project uses"',
    'git diff | mudroom -p "review this" -o json',
    "mudroom                start an interactive session",
    "mudroom -c             continue the last session of this folder",
    "mudroom view           open the run viewer in a browser",
)

# The first option of each group of the full help.
OPTION_GROUPS = {
    "print_prompt": "Prompt and model",
    "agent": "Agents and output values",
    "max_turns": "Limits",
    "worker": "Children",
    "sandbox": "Sandbox and permissions",
    "plugin_dirs": "Programs and traces",
    "continue_last": "Sessions",
    "output_format": "Output",
    "help": "Help",
}

COMMAND_GROUPS = {
    "sessions": "runs show resume rename delete export record replay journal view",
    "tasks": "agents plugins batch fleet board workspaces serve",
    "settings": "init config models mcp acp hooks permissions trust doctor completion",
}

_LISTING = "\n".join(f"{name:9} {commands}" for name, commands in COMMAND_GROUPS.items())

# Fits on one screen.
SHORT_HELP = f"""\
mudroom splits a large task into small ones, each with its own clean context.

  mudroom                 start an interactive session
  mudroom -p "find what testing framework this project uses"
  git diff | mudroom -p "review this" -o json
  mudroom -c              continue the last session of this folder
  mudroom view            open the run viewer in a browser

  -p, --print PROMPT      answer one prompt and exit; piped text is added to it
  -C DIR                  work in this folder
  -m, --model MODEL       anthropic:sonnet, ollama:qwen3:8b, offline, …
  -c, --continue          continue the last session of this folder
  -r, --resume ID|NAME    resume a session; without an ID, pick from a list
  -o, --output-format F   text, json, stream-json
  --permission-mode M     default, acceptEdits, plan, dontAsk, bypassPermissions

{_LISTING}

mudroom --help-all      every flag; mudroom help COMMAND explains one command
"""


class RootCommand(click.Command):
    """The unnamed command. Its help begins with examples and lists the named commands."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        with formatter.section("Examples"):
            formatter.write_text("\b\n" + "\n".join(EXAMPLES))
        groups: dict[str, list[tuple[str, str]]] = {}
        heading = ""
        for item in filter(lambda each: isinstance(each, click.Option), self.params):
            heading = OPTION_GROUPS.get(item.name or "", heading)
            if record := item.get_help_record(ctx):
                groups.setdefault(heading, []).append(record)
        for name, commands in COMMAND_GROUPS.items():
            rows = [(each, ALL_COMMANDS[each].get_short_help_str(64)) for each in commands.split()]
            groups[f"Commands for {name}"] = rows
        for name, rows in groups.items():
            with formatter.section(name):
                formatter.write_dl(rows)

    def make_parser(self, ctx: click.Context) -> _OptionParser:
        # click looks for short options among the long ones first, comparing each by difflib; this
        # way it finds them at once.
        parser = super().make_parser(ctx)
        parser._long_opt.update(parser._short_opt)  # noqa: SLF001
        return parser

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reject an unknown command before its flags are parsed as this command's."""
        # The SDK's flags are not mudroom's, so remove them first.
        if is_started_by_sdk(args):
            ctx.obj = separate_sdk_flags(args, self)
            return super().parse_args(ctx, ctx.obj.rest)
        if not any(arg.partition("=")[0] in PRINT_FLAGS for arg in args):
            words = list(itertools.takewhile(lambda arg: not arg.startswith("-"), args))
            reject_unknown_command(words, ALL_COMMANDS)
        return super().parse_args(ctx, args)


def _print_help(ctx: click.Context, option: click.Parameter, requested: bool) -> None:
    if requested:
        print(f"{ctx.get_help()}\n" if option.name == "help_all" else SHORT_HELP, end="")
        ctx.exit()


@click.command(cls=RootCommand, context_settings=CONTEXT_SETTINGS | {"help_option_names": []})
@click.argument("words", nargs=-1, metavar="[PROMPT]", type=click.UNPROCESSED)
@click.option(
    *PRINT_FLAGS,
    "print_prompt",
    is_flag=False,
    flag_value=WITHOUT_VALUE,
    metavar="[PROMPT]",
    type=click.UNPROCESSED,
    help="Answer one prompt and exit; piped text is added to it, - reads stdin.",
)
@folder_option("Work in this folder; with --resume, a session whose folder has moved.", None)
@value_option(
    "-m --model",
    "MODEL",
    "provider:model, e.g. anthropic:claude-sonnet-4-5, ollama:qwen3:8b, offline.",
)
@value_option(
    "--fallback-model", "MODEL", "Model that continues when the first one fails permanently."
)
@value_option(
    "--child-model",
    "MODEL",
    'Model of child runs, or one per agent: "explore=haiku; *=sonnet" (default: as their parent).',
)
@value_option(
    "--max-output-tokens", "N", "Longest single answer in tokens (default: by the model).", COUNT
)
@switch_option(
    "--takes-images", "Send images to the model, also if it is not known to accept them."
)
@value_option("--agent", "NAME", "Agent to run instead of the built-in one (mudroom agents).")
@value_option(
    "--agents", "JSON", 'More agents: {"name": {"description": …, "prompt": …, "tools": […]}}.'
)
@value_option(
    "--json-schema", "JSON|FILE", "Return structured output that matches this JSON Schema."
)
@value_option(
    "--max-turns", "N", "Maximum model calls of the main run; one more for a summary.", COUNT
)
@value_option("--max-minutes", "N", "Time limit in minutes, child runs included.", AMOUNT)
@value_option("--max-tokens", "N", "Token limit (input + output), child runs included.", COUNT)
@value_option(
    "--max-budget-usd", "USD", "Spending limit in US dollars, child runs included.", AMOUNT
)
@value_option(
    "--max-children", "N", "Maximum number of child runs at the same time; more wait.", COUNT
)
@worker_option("children")
@switch_option("--board", "Offer the tools for the task board of the project.")
@switch_option(
    "--isolate",
    "Give each child that may change files its own copy; merge its changes when it reports.",
)
@value_option(
    "--check",
    "COMMAND",
    "Command, such as 'make test', that must succeed before the work of such a child is merged.",
)
@switch_option(
    "--strict-merges",
    "With -p: exit with 3 if work of a child did not land, although the run succeeded.",
)
@sandbox_option
@switch_option("--allow-net", "Let commands, web_fetch and web_search reach the network.")
@mode_option("Permission mode when no rule matches (default: ask before changes).")
@rules_options
@flag_option(
    "--dangerously-skip-permissions skip_permissions",
    "Skip all permission prompts (same as --permission-mode bypassPermissions).",
)
@switch_option(
    "--trust", "Trust the agent files, MCP servers and hooks of this folder for this run."
)
@plugin_dir_option
@switch_option(
    "--trace", "Export traces with OpenTelemetry (also on with OTEL_EXPORTER_OTLP_ENDPOINT)."
)
@switch_option(
    "--annotate", "With -p: annotations on stderr and a summary of the step, for GitHub Actions."
)
@flag_option("-c --continue continue_last", "Continue the last session of this folder.")
@click.option(
    "-r",
    "--resume",
    is_flag=False,
    flag_value=WITHOUT_VALUE,
    metavar="[ID|NAME]",
    help="Resume a session; without an ID, pick from a list.",
)
@flag_option("--fork-session fork", "Resume as a new session; keep the original unchanged.")
@value_option("--session-id", "UUID", "Id of the new session.")
@value_option("-n --name", "NAME", "Name of the session, for --resume.")
@store_option
@format_option
@verbose_option
@quiet_option
@no_color_option
@flag_option(
    "--screen-reader", "Screen-reader mode: plain lines only (or set MUDROOM_SCREEN_READER=1)."
)
@click.option(
    "-h",
    "--help",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_help,
    help="Show the short help.",
)
@click.option(
    "--help-all",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_help,
    help="Show this full help.",
)
@flag_option("-v -V --version", "Show the version.")
def root_command(
    words: tuple[str, ...],
    print_prompt: str | None,
    cwd: str | None,
    verbose: bool,
    quiet: bool,
    no_color: bool,
    screen_reader: bool,
    version: bool,
    **flags: object,
) -> int:
    """Split a large task into small ones, each with a clean context of its own.

    Without -p, at a terminal, mudroom starts an interactive session; PROMPT is its first prompt.
    """
    if version:
        from ..._version import __version__

        print(f"mudroom {__version__}")
        return 0
    prompt, wait_for_stdin = _parse_prompt(words, print_prompt)
    selection = {
        flag: flags.pop(flag) for flag in ("resume", "continue_last", "fork", "session_id", "name")
    }
    if selection["resume"] == WITHOUT_VALUE:
        selection["resume"] = ""
    if flags.pop("skip_permissions"):
        flags["permission_mode"] = "bypassPermissions"
    flags["color"] = "never" if no_color else None
    flags["screen"] = "plain" if screen_reader else None
    from ..actions.load_settings import prepare_start

    sdk = click.get_current_context().obj
    if isinstance(sdk, SdkFlags):
        from ..actions.serve_sdk import serve_agent_sdk

        flags["output_format"] = "stream-json"
        options = prepare_start(cwd, selection, flags, verbose=verbose, quiet=quiet)
        return serve_agent_sdk(options, sdk.values, sdk.switches, sdk.notices)
    one_shot = print_prompt is not None or prompt == "-" or flags["output_format"] is not None
    at_prompt = not one_shot and is_interactive()
    options = prepare_start(
        cwd, selection, flags, verbose=verbose, quiet=quiet, asks_at_prompt=at_prompt
    )
    if at_prompt:
        from ..interactive.entry import run_prompt_ui

        return run_prompt_ui(options, first=prompt or "")
    from ..actions.one_shot import run_print_mode

    words_of_prompt = None if prompt == "-" else prompt
    return run_print_mode(words_of_prompt, options, wait_for_stdin=wait_for_stdin)


def is_interactive() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def _parse_prompt(words: tuple[str, ...], print_prompt: str | None) -> tuple[str | None, bool]:
    """Parse the command line's prompt, None without one, and whether to wait for stdin.

    A lone "-" after a prompt means: wait for stdin.
    """
    prompts = list(words)
    if print_prompt is not None and print_prompt != WITHOUT_VALUE:
        prompts.insert(0, print_prompt)
    if not prompts:
        return None, False
    if len(prompts) == 2 and prompts[1] == "-":
        return prompts[0], True
    if print_prompt is None:
        reject_unknown_command(prompts, ALL_COMMANDS)
    if len(prompts) > 1:
        raise UsageError(
            f"expected one prompt, but there are {len(prompts)}: {' | '.join(prompts)}",
            remedy=f'Put the prompt in quotes: mudroom -p "{" ".join(prompts)}"',
        )
    return prompts[0], False


@click.command(name="help", context_settings=CONTEXT_SETTINGS)
@click.argument("commands", metavar="[COMMAND [SUBCOMMAND]]", nargs=-1)
def help_(commands: tuple[str, ...]) -> int:
    """Explain mudroom, or one of its commands."""
    explained: click.Command = root_command
    known: Mapping[str, click.Command] = ALL_COMMANDS
    for command in commands:
        if not known:
            raise UsageError(
                f"mudroom {explained.name} has no subcommands",
                where=command,
                remedy=f"Write: mudroom help {explained.name}",
            )
        if command not in known:
            raise UnknownName("command", command, known)
        explained = known[command]
        known = explained.commands if isinstance(explained, click.Group) else {}
    if explained is root_command:
        print(SHORT_HELP, end="")
        return 0
    name = " ".join(["mudroom", *commands])
    print(explained.get_help(click.Context(explained, info_name=name, max_content_width=120)))
    return 0


COMMANDS: dict[str, click.Command] = {"help": help_}
reject_blank_texts([root_command])

_SDK_USED_VALUES = (
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
# Listed because they take values, which must not be read as prompts.
_SDK_UNUSED_VALUES = (
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
_SDK_VALUES = (*_SDK_USED_VALUES, *_SDK_UNUSED_VALUES)
_SDK_SWITCHES = (
    "--include-partial-messages",
    "--include-hook-events",
    "--replay-user-messages",
    "--allow-dangerously-skip-permissions",
    "--strict-mcp-config",
    "--await-initialize",
    "--verbose",
)
# Permission modes that mudroom lacks -> what replaces each.
_SDK_MODES = {"auto": "default", "delegate": "default", "manual": "default"}


class SdkFlags(Struct):
    """The agent SDKs' flags, with values (in order) and without; `rest` has mudroom's own."""

    values: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    switches: list[str] = field(default_factory=list[str])
    rest: list[str] = field(default_factory=list[str])
    notices: list[str] = field(default_factory=list[str])


def is_started_by_sdk(arguments: Sequence[str]) -> bool:
    wanted = ("--input-format", "stream-json")
    return "=".join(wanted) in arguments or wanted in pairwise(arguments)


def separate_sdk_flags(arguments: Sequence[str], command: click.Command) -> SdkFlags:
    """Separate the SDKs' flags from a command's. Unknown flags become notices.

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
        if name in _SDK_VALUES:
            value = value if equals or not waiting else waiting.pop(0)
            flags.values.setdefault(name, []).append(value)
            if name in _SDK_UNUSED_VALUES:
                flags.notices.append(f"not used by mudroom: {name}")
        elif name in _SDK_SWITCHES:
            flags.switches.append(name)
        elif name in options or not name.startswith("-"):
            takes_value = name in options and _takes_value(options[name])
            value = waiting.pop(0) if takes_value and not equals and waiting else value
            flags.rest += _replace_mode(name, argument, value, takes_value=takes_value)
        else:
            # An unknown flag may take a value; a word after it is more likely a value than a
            # prompt.
            if not equals and waiting and not waiting[0].startswith("-"):
                waiting.pop(0)
            flags.notices.append(f"not used by mudroom: {name}")
    flags.notices = list(dict.fromkeys(flags.notices))
    return flags


def _takes_value(option: click.Option) -> bool:
    return not option.is_flag and not isinstance(option.flag_value, str)


def _replace_mode(name: str, argument: str, value: str, *, takes_value: bool) -> list[str]:
    """Return the arguments of one of mudroom's flags, with a permission mode it supports."""
    if not takes_value:
        return [argument]
    return [name, _SDK_MODES.get(value, value) if name == "--permission-mode" else value]
