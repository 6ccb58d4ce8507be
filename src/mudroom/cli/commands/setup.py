"""Commands of a first hour: shell completion, settings, a first AGENTS.md."""

from __future__ import annotations

import os

import click

from ...errors import UnknownName, UsageError
from ..actions.load_settings import CONTEXT_SETTINGS, complete_folders, load_settings

SHELLS = ("bash", "zsh", "fish")


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> int:
    """Print the completion script of a shell.

    \b
    bash: eval "$(mudroom completion bash)"           in ~/.bashrc
    zsh:  eval "$(mudroom completion zsh)"            in ~/.zshrc
    fish: mudroom completion fish > ~/.config/fish/completions/mudroom.fish
    """
    from .shell_completion import completion_script

    print(completion_script(shell), end="")
    return 0


@click.command(context_settings=CONTEXT_SETTINGS)
@click.option(
    "-C", "cwd", default=".", metavar="DIR", shell_complete=complete_folders, help="In this folder."
)
def init(cwd: str) -> int:
    """Write an AGENTS.md and a sample agent; what is there stays."""
    from ..actions.init_project import write_starter_files

    load_settings(cwd)
    for line in write_starter_files(cwd):
        print(line)
    return 0


@click.group(context_settings=CONTEXT_SETTINGS, invoke_without_command=True)
@click.pass_context
def config(ctx: click.Context) -> int | None:
    """Say what is set and where, or set it in your own file."""
    return None if ctx.invoked_subcommand else ctx.invoke(get, name=None)


@config.command(context_settings=CONTEXT_SETTINGS)
@click.argument("name", required=False)
def get(name: str | None) -> int:
    """Print a setting, or all of them, each with its origin."""
    from ...config import SETTING_NAMES

    settings, wanted = load_settings("."), name.replace("-", "_") if name else ""
    if wanted and wanted not in SETTING_NAMES:
        raise UnknownName("setting", name or "", SETTING_NAMES)
    for key in [wanted] if wanted else SETTING_NAMES:
        value = getattr(settings, key)
        shown = (
            "(none)"
            if value in (None, "")
            else str(value).lower()
            if isinstance(value, bool)
            else str(value)
        )
        print(f"{key:<16} {shown:<24} {settings.origin(key)}")
    return 0


@config.command("set", context_settings=CONTEXT_SETTINGS)
@click.argument("name")
@click.argument("value")
def set_(name: str, value: str) -> int:
    """Set something in your own file; an empty VALUE takes it away."""
    from ...config import find_user_file, write_setting

    path = find_user_file(os.environ)
    try:
        write_setting(path, name, value)
    except OSError as error:
        raise UsageError(
            f"the settings cannot be written: {error.strerror}", where=str(path)
        ) from None
    print(path)
    return 0


@config.command(context_settings=CONTEXT_SETTINGS)
def path() -> int:
    """Print where your own file of settings is."""
    from ...config import find_user_file

    print(find_user_file(os.environ))
    return 0


COMMANDS: dict[str, click.Command] = {"completion": completion, "config": config, "init": init}
