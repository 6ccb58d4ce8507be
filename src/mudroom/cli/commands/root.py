"""The command line's words: flags, commands, and what each of them starts. Everything slow is imported when it is needed."""

from __future__ import annotations

import difflib
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from ...errors import UsageError
from ..actions.load_permissions import MODES, join_tool_flags
from ..actions.load_settings import CONTEXT_SETTINGS, complete_folders, load_settings
from ..actions.session_start import NEW_SESSION
from .permissions import COMMANDS as OF_PERMISSIONS
from .sessions import COMMANDS as OF_SESSIONS
from .setup import COMMANDS as OF_SETUP
from .viewer import COMMANDS as OF_VIEWER

if TYPE_CHECKING:
    from ...config import Settings

PRINT_WITHOUT_PROMPT = "\0"
"""Value of a `-p` that stands alone."""


EXAMPLES = (
    'mudroom -p "find what testing framework this project uses"',
    'git diff | mudroom -p "review this" -o json',
    "mudroom                a prompt to type at",
    "mudroom -c             go on with the last session of this folder",
    "mudroom view           see in a browser what the children did",
)


class RootCommand(click.Command):
    """The command without a name; its help begins with examples and lists the commands that have a name."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write usage, examples, options and commands."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        with formatter.section("Examples"):
            formatter.write_text("\b\n" + "\n".join(EXAMPLES))
        with formatter.section("Options"):
            formatter.write_dl(
                [record for param in self.params if (record := param.get_help_record(ctx))]
            )
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, command.get_short_help_str(64)) for name, command in COMMANDS.items()]
            )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """A command that was mistyped is told before its flags are taken for ours."""
        if args and not args[0].startswith("-"):
            _reject_mistyped_command(args[0])
        return super().parse_args(ctx, args)


def _reject_mistyped_command(word: str) -> None:
    """Raise UsageError for a word that is nearly a command."""
    if near := difflib.get_close_matches(word, COMMANDS, n=1, cutoff=0.6):
        raise UsageError(
            f"unknown command {word!r}",
            remedy=f"Did you mean {near[0]}? For a prompt of one word: mudroom -p {word}",
        )


def _print_help(ctx: click.Context, asked: click.Parameter, wanted: bool) -> None:
    if wanted:
        from .help_text import SHORT_HELP

        print(SHORT_HELP if asked.name == "h" else f"{ctx.get_help()}\n", end="")
        ctx.exit()


def is_interactive() -> bool:
    """Whether a person sits at both ends: keyboard and screen."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


@click.command(
    cls=RootCommand, context_settings=CONTEXT_SETTINGS | {"help_option_names": ["--help"]}
)
@click.argument("words", nargs=-1, metavar="[PROMPT]")
@click.option(
    "-p",
    "--print",
    "--prompt",
    "once",
    is_flag=False,
    flag_value=PRINT_WITHOUT_PROMPT,
    metavar="[PROMPT]",
    help="Answer one prompt and exit; piped text joins it, - is stdin.",
)
@click.option(
    "-C",
    "cwd",
    default=".",
    metavar="DIR",
    shell_complete=complete_folders,
    help="Work in this folder.",
)
@click.option(
    "-m",
    "--model",
    metavar="MODEL",
    help="provider:model, e.g. anthropic:claude-sonnet-4-5, ollama:qwen3:8b, offline.",
)
@click.option(
    "--child-model", metavar="MODEL", help="Model of the children; default: their parent's."
)
@click.option(
    "--agent",
    metavar="NAME",
    help="Who takes the prompt, in place of the built-in agent (mudroom agents).",
)
@click.option(
    "--agents",
    metavar="JSON",
    help='More agents: {"name": {"description": …, "prompt": …, "tools": […]}}.',
)
@click.option(
    "--json-schema", metavar="JSON|FILE", help="The answer as values of this JSON Schema."
)
@click.option(
    "--max-turns",
    type=click.IntRange(1),
    metavar="N",
    help="Most model calls for the prompt itself.",
)
@click.option(
    "--max-minutes",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="Most minutes for the prompt and all below it.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(1),
    metavar="N",
    help="Most tokens, read and written together, children included.",
)
@click.option(
    "--max-budget-usd",
    type=click.FloatRange(0, min_open=True),
    metavar="USD",
    help="Most money, children included.",
)
@click.option(
    "--max-children", type=click.IntRange(1), metavar="N", help="Most children at once; more wait."
)
@click.option(
    "--sandbox",
    type=click.Choice(["auto", "full", "file", "off"]),
    help="Walls around commands; off: none.",
)
@click.option("--allow-net", is_flag=True, default=None, help="Let commands reach the network.")
@click.option(
    "--permission-mode",
    type=click.Choice(MODES),
    help="What holds where no rule does; default: changes are asked.",
)
@click.option(
    "--allowed-tools",
    "--allowedTools",
    multiple=True,
    metavar="RULES",
    help='Allow without asking: "Bash(git diff:*),Edit".',
)
@click.option(
    "--disallowed-tools",
    "--disallowedTools",
    multiple=True,
    metavar="RULES",
    help='Never allow: "Bash(git push:*)".',
)
@click.option(
    "--dangerously-skip-permissions",
    "skip",
    is_flag=True,
    help="Ask nothing: --permission-mode bypassPermissions.",
)
@click.option(
    "--trust",
    is_flag=True,
    default=None,
    help="Use this folder's agents with the rights they ask for, this once.",
)
@click.option(
    "-c", "--continue", "latest", is_flag=True, help="Go on with the last session of this folder."
)
@click.option(
    "-r",
    "--resume",
    is_flag=False,
    flag_value="",
    metavar="[ID|NAME]",
    help="Go on with a session; alone it asks which.",
)
@click.option(
    "--fork-session", "fork", is_flag=True, help="Go on with a copy of it, and leave it as it is."
)
@click.option("--session-id", "id", metavar="UUID", help="Id of the new session.")
@click.option("-n", "--name", metavar="NAME", help="Name of the session, for --resume.")
@click.option(
    "-o",
    "--output-format",
    type=click.Choice(["text", "json", "stream-json"]),
    help="What stdout carries.",
)
@click.option(
    "--verbose", is_flag=True, help="On stderr a line for every call, where there is no live tree."
)
@click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors.")
@click.option("--no-color", is_flag=True, help="No colours; so does NO_COLOR.")
@click.option(
    "--screen-reader",
    is_flag=True,
    help="Plain lines, no cursor that moves; so does MUDROOM_SCREEN_READER=1.",
)
@click.option(
    "-h",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_help,
    help="A short help.",
)
@click.option(
    "--help-all",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_help,
    help="This help: all there is.",
)
@click.option("-v", "-V", "--version", is_flag=True, help="Say which version this is.")
def root_command(
    words: tuple[str, ...],
    once: str | None,
    cwd: str,
    verbose: bool,
    quiet: bool,
    no_color: bool,
    screen_reader: bool,
    version: bool,
    **flags: Any,
) -> int:
    """Cut a big task into small ones, each in a clean context of its own.

    Without -p, at a terminal, it opens a prompt to type at; a PROMPT given is its first.
    """
    if version:
        from ..._version import __version__

        print(f"mudroom {__version__}")
        return 0
    given, wait = _prompt_of_arguments(words, once)
    which = {flag: flags.pop(flag) for flag in ("resume", "latest", "fork", "id", "name")}
    skip = {"permission_mode": "bypassPermissions"} if flags.pop("skip") else {}
    flags = join_tool_flags(flags) | skip
    flags |= {"color": "never" if no_color else None, "screen": "plain" if screen_reader else None}
    settings, start = load_settings(cwd, **flags), NEW_SESSION
    if any(value not in (None, False) for value in which.values()):
        from ..actions.select_session import select_session

        start = select_session(settings.home, cwd, **which)
    if start.folder:
        cwd, settings = start.folder, load_settings(start.folder, **flags)
    if once is None and flags["output_format"] is None and given != "-" and is_interactive():
        return _run_prompt_ui(
            settings, cwd=cwd, start=start, first=given or "", verbose=verbose, quiet=quiet
        )
    return _run_one_shot(
        None if given == "-" else given,
        wait,
        settings,
        cwd=cwd,
        start=start,
        verbose=verbose,
        quiet=quiet,
    )


def _run_prompt_ui(settings: Settings, **more: Any) -> int:
    """A conversation at a prompt; the exit code."""
    import asyncio

    from ..interactive.typeahead import hold_input
    from ..output.progress import supports_cursor

    with hold_input(settings.screen != "plain" and supports_cursor(sys.stdin)) as early:
        from ..interactive.entry import start_prompt

        return asyncio.run(start_prompt(settings, early=early, **more))


def _run_one_shot(given: str | None, wait: bool, settings: Settings, **more: Any) -> int:
    """One prompt, one answer; the exit code."""
    from ..actions.preload import preload_packages
    from ..output.progress import print_notice

    preload_packages(settings.model)
    import asyncio

    from ..actions.one_shot import run_one_shot
    from ..actions.read_prompt import read_prompt

    prompt = read_prompt(given, sys.stdin, wait=wait, warn=print_notice)
    return asyncio.run(run_one_shot(prompt, settings, **more))


def _prompt_of_arguments(words: tuple[str, ...], once: str | None) -> tuple[str | None, bool]:
    """The prompt on the command line, None if there is none; and whether a lone - asks to wait for stdin."""
    spoken = [*([] if once in (None, PRINT_WITHOUT_PROMPT) else [str(once)]), *words]
    if len(spoken) == 2 and spoken[1] == "-":
        return spoken[0], True
    if len(spoken) > 1:
        raise UsageError(
            f"one prompt is enough, but there are {len(spoken)}: {' | '.join(spoken)}",
            remedy="Put it in quotes.",
        )
    if once is None and spoken:
        _reject_mistyped_command(spoken[0])
    return (spoken[0] if spoken else None), False


@click.command(context_settings=CONTEXT_SETTINGS)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.option(
    "-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="How many."
)
def runs(as_json: bool, limit: int) -> int:
    """List recorded sessions, newest first."""
    from ..actions.list_sessions import print_sessions

    return print_sessions(load_settings(".").home, as_json=as_json, limit=limit)


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("session", metavar="RUN")
@click.option(
    "--run", "run_id", metavar="ID", help="The transcript of this child, by the id the tree shows."
)
@click.option("--no-color", is_flag=True, help="No colours.")
def show(session: str, run_id: str | None, no_color: bool) -> int:
    """Show a recorded session: the tree of its runs, the ledger, a transcript.

    RUN is an id from `mudroom runs`, or the beginning of one, or "last".
    """
    from ..actions.list_sessions import print_session

    settings = load_settings(".", color="never" if no_color else None)
    return print_session(settings.home, session, run_id, color=settings.color)


@click.command(context_settings=CONTEXT_SETTINGS)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def models(as_json: bool) -> int:
    """List providers, and whose key or address is found."""
    from ..actions.doctor import print_providers

    return print_providers(load_settings("."), as_json=as_json)


@click.command(context_settings=CONTEXT_SETTINGS)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def doctor(as_json: bool) -> int:
    """Check that everything mudroom needs is there; says what to do about what is not."""
    from ..actions.doctor import print_checks

    return print_checks(as_json=as_json)


@click.command(name="help", context_settings=CONTEXT_SETTINGS)
@click.argument("command", required=False)
@click.option(
    "--man", is_flag=True, help="The whole manual as a man page: mudroom help --man | man -l -"
)
def help_(command: str | None, man: bool) -> int:
    """Explain mudroom, or one of its commands."""
    from ...errors import UnknownName

    if man:
        from .man_page import render_man_page

        print(render_man_page(root_command, COMMANDS), end="")
        return 0
    if command and command not in COMMANDS:
        raise UnknownName("command", command, COMMANDS)
    shown, name = (
        (COMMANDS[command], f"mudroom {command}") if command else (root_command, "mudroom")
    )
    print(shown.get_help(click.Context(shown, info_name=name, max_content_width=120)))
    return 0


@click.group(invoke_without_command=True, context_settings=CONTEXT_SETTINGS)
@click.option(
    "-C",
    "cwd",
    default=".",
    metavar="DIR",
    shell_complete=complete_folders,
    help="As seen from this folder.",
)
@click.pass_context
def agents(ctx: click.Context, cwd: str) -> int | None:
    """List agents and skills; show, begin or check their files."""
    load_settings(cwd)
    ctx.obj = cwd
    return None if ctx.invoked_subcommand else ctx.invoke(list_agents, as_json=False)


@agents.command("list", context_settings=CONTEXT_SETTINGS)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def list_agents(as_json: bool) -> int:
    """List the agents and skills there are (the default)."""
    from ..actions.agents import print_agents

    return print_agents(click.get_current_context().obj, os.environ, as_json=as_json)


@agents.command("show", context_settings=CONTEXT_SETTINGS)
@click.argument("name")
@click.pass_obj
def show_agent(cwd: str, name: str) -> int:
    """Show one agent as it would run."""
    from ..actions.agents import print_agent

    return print_agent(cwd, os.environ, name)


@agents.command("new", context_settings=CONTEXT_SETTINGS)
@click.argument("name")
@click.pass_obj
def new_agent(cwd: str, name: str) -> int:
    """Begin an agent's file in .agents/agents."""
    from ..actions.agents import create_agent_file

    return create_agent_file(cwd, name)


@agents.command("check", context_settings=CONTEXT_SETTINGS)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.pass_obj
def check_agents(cwd: str, paths: tuple[str, ...]) -> int:
    """Say what is wrong with agent files, skills and context files; 1 if one cannot be used."""
    from ..actions.agents import check_agent_files

    return check_agent_files(cwd, os.environ, paths)


COMMANDS: dict[str, click.Command] = {
    "runs": runs,
    "show": show,
    **OF_SESSIONS,
    **OF_VIEWER,
    **OF_PERMISSIONS,
    "models": models,
    "agents": agents,
    "doctor": doctor,
    **OF_SETUP,
    "help": help_,
}
