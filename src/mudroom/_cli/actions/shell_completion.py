"""Shell completion by click: scripts for shells, and the completions they request."""

from __future__ import annotations

from collections.abc import Mapping

import click
from click.shell_completion import get_completion_class, shell_complete

COMPLETION_VARIABLE = "_MUDROOM_COMPLETE"

# For a zsh whose startup files do not load its completion system.
_START_ZSH_COMPLETION = """\
if (( ! $+functions[compdef] )) && [[ $zsh_eval_context[-1] != loadautofunc ]]; then
    autoload -Uz compinit && compinit
fi
"""


def print_script(shell: str) -> None:
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    completion = completion_class(click.Command("mudroom"), {}, "mudroom", COMPLETION_VARIABLE)
    script = completion.source()
    if shell == "fish":  # a help text may contain commas
        script = script.replace('string split "," ', 'string split -m 1 "," ')
    if shell == "zsh":
        header = "#compdef mudroom\n"
        script = script.replace(header, f"{header}\n{_START_ZSH_COMPLETION}", 1)
    print(script, end="")


def print_completions(
    instruction: str, root_command: click.Command, commands: Mapping[str, click.Command]
) -> int:
    """Print the completions a shell requests with an instruction like "bash_complete"."""
    options = [item for item in root_command.params if isinstance(item, click.Option)]
    whole = click.Group("mudroom", commands=dict(commands), params=list(options))
    return shell_complete(whole, {}, "mudroom", COMPLETION_VARIABLE, instruction)
