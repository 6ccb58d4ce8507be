"""The command line's words: flags, commands, and what each of them starts. Everything slow is imported when it is needed."""

from __future__ import annotations

import difflib
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from ...errors import UsageError
from ..actions.load_permissions import MODES, joined
from ..actions.load_settings import HELP, folders, prepare
from ..actions.session_start import NEW
from .permissions import COMMANDS as OF_PERMISSIONS
from .sessions import COMMANDS as OF_SESSIONS
from .setup import COMMANDS as OF_SETUP
from .viewer import COMMANDS as OF_VIEWER

if TYPE_CHECKING:
    from ...config import Settings

BARE = "\0"
"""Value of a `-p` that stands alone."""


EXAMPLES = (
    'mudroom -p "find what testing framework this project uses"',
    'git diff | mudroom -p "review this" -o json',
    "mudroom                a prompt to type at",
    "mudroom -c             go on with the last session of this folder",
    "mudroom view           see in a browser what the children did",
)


class _Front(click.Command):
    """The command without a name; its help begins with examples and lists the commands that have a name."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
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
            _meant(args[0])
        return super().parse_args(ctx, args)


def _meant(word: str) -> None:
    """Raise UsageError for a word that is nearly a command."""
    if near := difflib.get_close_matches(word, COMMANDS, n=1, cutoff=0.6):
        raise UsageError(
            f"unknown command {word!r}",
            remedy=f"Did you mean {near[0]}? For a prompt of one word: mudroom -p {word}",
        )


def _explain(ctx: click.Context, asked: click.Parameter, wanted: bool) -> None:
    if wanted:
        from .help_text import SHORT

        print(SHORT if asked.name == "h" else f"{ctx.get_help()}\n", end="")
        ctx.exit()


def terminal() -> bool:
    """Whether a person sits at both ends: keyboard and screen."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


@click.command(cls=_Front, context_settings=HELP | {"help_option_names": ["--help"]})
@click.argument("words", nargs=-1, metavar="[PROMPT]")
@click.option(
    "-p",
    "--print",
    "--prompt",
    "once",
    is_flag=False,
    flag_value=BARE,
    metavar="[PROMPT]",
    help="Answer one prompt and exit; piped text joins it, - is stdin.",
)
@click.option(
    "-C", "cwd", default=".", metavar="DIR", shell_complete=folders, help="Work in this folder."
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
    "-h", is_flag=True, is_eager=True, expose_value=False, callback=_explain, help="A short help."
)
@click.option(
    "--help-all",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_explain,
    help="This help: all there is.",
)
@click.option("-v", "-V", "--version", is_flag=True, help="Say which version this is.")
def front(
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
    given, wait = _given(words, once)
    which = {flag: flags.pop(flag) for flag in ("resume", "latest", "fork", "id", "name")}
    skip = {"permission_mode": "bypassPermissions"} if flags.pop("skip") else {}
    flags = joined(flags) | skip
    flags |= {"color": "never" if no_color else None, "screen": "plain" if screen_reader else None}
    settings, start = prepare(cwd, **flags), NEW
    if any(value not in (None, False) for value in which.values()):
        from ..actions.select_session import chosen

        start = chosen(settings.home, cwd, **which)
    if start.folder:
        cwd, settings = start.folder, prepare(start.folder, **flags)
    if once is None and flags["output_format"] is None and given != "-" and terminal():
        return _talked(
            settings, cwd=cwd, start=start, first=given or "", verbose=verbose, quiet=quiet
        )
    return _answered(
        None if given == "-" else given,
        wait,
        settings,
        cwd=cwd,
        start=start,
        verbose=verbose,
        quiet=quiet,
    )


def _talked(settings: Settings, **more: Any) -> int:
    """A conversation at a prompt; the exit code."""
    import asyncio

    from ..interactive.typeahead import held
    from ..output.progress import movable

    with held(settings.screen != "plain" and movable(sys.stdin)) as early:
        from ..interactive.entry import converse

        return asyncio.run(converse(settings, early=early, **more))


def _answered(given: str | None, wait: bool, settings: Settings, **more: Any) -> int:
    """One prompt, one answer; the exit code."""
    from ..actions.preload import warm
    from ..output.progress import say

    warm(settings.model)
    import asyncio

    from ..actions.one_shot import one_shot
    from ..actions.read_prompt import compose

    prompt = compose(given, sys.stdin, wait=wait, warn=say)
    return asyncio.run(one_shot(prompt, settings, **more))


def _given(words: tuple[str, ...], once: str | None) -> tuple[str | None, bool]:
    """The prompt on the command line, None if there is none; and whether a lone - asks to wait for stdin."""
    spoken = [*([] if once in (None, BARE) else [str(once)]), *words]
    if len(spoken) == 2 and spoken[1] == "-":
        return spoken[0], True
    if len(spoken) > 1:
        raise UsageError(
            f"one prompt is enough, but there are {len(spoken)}: {' | '.join(spoken)}",
            remedy="Put it in quotes.",
        )
    if once is None and spoken:
        _meant(spoken[0])
    return (spoken[0] if spoken else None), False


@click.command(context_settings=HELP)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.option(
    "-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="How many."
)
def runs(as_json: bool, limit: int) -> int:
    """List recorded sessions, newest first."""
    from ..actions.list_sessions import listing

    return listing(prepare(".").home, as_json=as_json, limit=limit)


@click.command(context_settings=HELP)
@click.argument("session", metavar="RUN")
@click.option(
    "--run", "run_id", metavar="ID", help="The transcript of this child, by the id the tree shows."
)
@click.option("--no-color", is_flag=True, help="No colours.")
def show(session: str, run_id: str | None, no_color: bool) -> int:
    """Show a recorded session: the tree of its runs, the ledger, a transcript.

    RUN is an id from `mudroom runs`, or the beginning of one, or "last".
    """
    from ..actions.list_sessions import showing

    settings = prepare(".", color="never" if no_color else None)
    return showing(settings.home, session, run_id, color=settings.color)


@click.command(context_settings=HELP)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def models(as_json: bool) -> int:
    """List providers, and whose key or address is found."""
    from ..actions.doctor import providers

    return providers(prepare("."), as_json=as_json)


@click.command(context_settings=HELP)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def doctor(as_json: bool) -> int:
    """Check that everything mudroom needs is there; says what to do about what is not."""
    from ..actions.doctor import examine

    return examine(as_json=as_json)


@click.command(name="help", context_settings=HELP)
@click.argument("command", required=False)
@click.option(
    "--man", is_flag=True, help="The whole manual as a man page: mudroom help --man | man -l -"
)
def help_(command: str | None, man: bool) -> int:
    """Explain mudroom, or one of its commands."""
    from ...errors import UnknownName

    if man:
        from .man_page import page

        print(page(front, COMMANDS), end="")
        return 0
    if command and command not in COMMANDS:
        raise UnknownName("command", command, COMMANDS)
    shown, name = (COMMANDS[command], f"mudroom {command}") if command else (front, "mudroom")
    print(shown.get_help(click.Context(shown, info_name=name, max_content_width=120)))
    return 0


@click.group(invoke_without_command=True, context_settings=HELP)
@click.option(
    "-C",
    "cwd",
    default=".",
    metavar="DIR",
    shell_complete=folders,
    help="As seen from this folder.",
)
@click.pass_context
def agents(ctx: click.Context, cwd: str) -> int | None:
    """List agents and skills; show, begin or check their files."""
    prepare(cwd)
    ctx.obj = cwd
    return None if ctx.invoked_subcommand else ctx.invoke(list_agents, as_json=False)


@agents.command("list", context_settings=HELP)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def list_agents(as_json: bool) -> int:
    """List the agents and skills there are (the default)."""
    from ..actions.agents import listing

    return listing(click.get_current_context().obj, os.environ, as_json=as_json)


@agents.command("show", context_settings=HELP)
@click.argument("name")
@click.pass_obj
def show_agent(cwd: str, name: str) -> int:
    """Show one agent as it would run."""
    from ..actions.agents import showing

    return showing(cwd, os.environ, name)


@agents.command("new", context_settings=HELP)
@click.argument("name")
@click.pass_obj
def new_agent(cwd: str, name: str) -> int:
    """Begin an agent's file in .agents/agents."""
    from ..actions.agents import beginning

    return beginning(cwd, name)


@agents.command("check", context_settings=HELP)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.pass_obj
def check_agents(cwd: str, paths: tuple[str, ...]) -> int:
    """Say what is wrong with agent files, skills and context files; 1 if one cannot be used."""
    from ..actions.agents import checking

    return checking(cwd, os.environ, paths)


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
