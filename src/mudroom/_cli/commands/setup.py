"""Commands for setup: providers, checks, shell completion, settings, a first AGENTS.md."""

from __future__ import annotations

import click

from ._definitions import CommandGroup, define_command
from ._options import folder_option, json_option, value_option

_models = define_command(
    "models",
    "providers.print_providers",
    "List providers and show which are set up (key or address).",
    json_option,
)
_doctor = define_command(
    "doctor",
    "doctor.print_checks",
    "Check this machine and say how to fix what is missing.",
    value_option(
        "--model",
        "MODEL",
        "Send this model one small request with a tool, and say what its server can do.",
    ),
    json_option,
)
_completion = define_command(
    "completion",
    "shell_completion.print_script",
    """Print the completion script of a shell.

    \b
    bash: eval "$(mudroom completion bash)"           in ~/.bashrc
    zsh:  eval "$(mudroom completion zsh)"            in ~/.zshrc
    fish: mudroom completion fish > ~/.config/fish/completions/mudroom.fish
    """,
    click.argument("shell", type=click.Choice(("bash", "zsh", "fish"))),
)
_init = define_command(
    "init",
    "init_project.init_project",
    "Create AGENTS.md and a sample agent; existing files are kept.",
    folder_option("Write into this folder."),
)

_config = CommandGroup(
    "config",
    "edit_settings.print_settings",
    "Show settings and their origins, or change your user config.",
)
_config.define(
    "get",
    "edit_settings.print_settings",
    "Print a setting, or all of them, each with its origin.",
    click.argument("name", required=False),
)
_config.define(
    "set",
    "edit_settings.change_setting",
    "Set a value in your user config; an empty VALUE removes it.",
    click.argument("name"),
    click.argument("value", type=click.UNPROCESSED),
)
_config.define("path", "edit_settings.print_user_file", "Print the path of your user config.")

COMMANDS: dict[str, click.Command] = {
    "models": _models,
    "doctor": _doctor,
    "completion": _completion,
    "config": _config,
    "init": _init,
}
