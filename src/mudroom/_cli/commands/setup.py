"""Commands for the setup: providers, checks, shell completion, settings, a first AGENTS.md."""

from __future__ import annotations

import click

from ._options import CONTEXT_SETTINGS, folder_option, json_option


@click.command(context_settings=CONTEXT_SETTINGS)
@json_option
def models(as_json: bool) -> int:
    """List providers and show which are set up (key or address)."""
    from ..actions.providers import print_providers

    return print_providers(as_json=as_json)


@click.command(context_settings=CONTEXT_SETTINGS)
@click.option(
    "--model",
    metavar="MODEL",
    help="Send this model one small request with a tool, and say what its server can do.",
)
@json_option
def doctor(model: str | None, as_json: bool) -> int:
    """Check this machine and say how to fix what is missing."""
    from ..actions.doctor import print_checks

    return print_checks(model=model, as_json=as_json)


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> int:
    """Print the completion script of a shell.

    \b
    bash: eval "$(mudroom completion bash)"           in ~/.bashrc
    zsh:  eval "$(mudroom completion zsh)"            in ~/.zshrc
    fish: mudroom completion fish > ~/.config/fish/completions/mudroom.fish
    """
    from ..actions.shell_completion import print_script

    return print_script(shell)


@click.command(context_settings=CONTEXT_SETTINGS)
@folder_option("Write into this folder.")
def init(cwd: str) -> int:
    """Create AGENTS.md and a sample agent; existing files are kept."""
    from ..actions.init_project import init_project

    return init_project(cwd)


@click.group(context_settings=CONTEXT_SETTINGS, invoke_without_command=True)
@click.pass_context
def config(ctx: click.Context) -> int | None:
    """Show settings and their origins, or change your user config."""
    return None if ctx.invoked_subcommand else ctx.invoke(get, name=None)


@config.command(context_settings=CONTEXT_SETTINGS)
@click.argument("name", required=False)
def get(name: str | None) -> int:
    """Print a setting, or all of them, each with its origin."""
    from ..actions.edit_settings import print_settings

    return print_settings(name)


@config.command("set", context_settings=CONTEXT_SETTINGS)
@click.argument("name")
@click.argument("value", type=click.UNPROCESSED)
def set_(name: str, value: str) -> int:
    """Set a value in your user config; an empty VALUE removes it."""
    from ..actions.edit_settings import change_setting

    return change_setting(name, value)


@config.command(context_settings=CONTEXT_SETTINGS)
def path() -> int:
    """Print the path of your user config."""
    from ..actions.edit_settings import print_user_file

    return print_user_file()


COMMANDS: dict[str, click.Command] = {
    "models": models,
    "doctor": doctor,
    "completion": completion,
    "config": config,
    "init": init,
}
