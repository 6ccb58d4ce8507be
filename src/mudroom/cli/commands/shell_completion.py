"""Completion scripts for shells, and the answers they ask for while a person types."""

from __future__ import annotations

import os
from collections.abc import Mapping

import click
from click.shell_completion import BashComplete, ShellComplete, get_completion_class

COMPLETION_VARIABLE = "_MUDROOM_COMPLETE"
"""Environment variable by which a shell asks for completions."""

_BASH = """\
_mudroom_completion() {
    local IFS=$'\\n' reply
    COMPREPLY=()
    while IFS=, read -r kind word; do
        case $kind in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$word") ;;
        esac
    done < <(COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _MUDROOM_COMPLETE=bash_complete "$1" 2>/dev/null)
}
complete -o nosort -F _mudroom_completion mudroom
"""

_BEGUN = """\
if (( ! $+functions[compdef] )) && [[ $zsh_eval_context[-1] != loadautofunc ]]; then
    autoload -Uz compinit && compinit
fi
"""
"""For a zsh whose completion nobody has begun."""


def completion_script(shell: str) -> str:
    """What a shell has to read to complete our words. `shell`: "bash", "zsh" or "fish"."""
    if shell == "bash":
        return _BASH
    made = get_completion_class(shell)
    assert made is not None
    source = made(click.Command("mudroom"), {}, "mudroom", COMPLETION_VARIABLE).source()
    if shell == "fish":  # what is said of a word may have commas
        return source.replace('string split "," ', 'string split -m 1 "," ')
    return source.replace("#compdef mudroom\n", "#compdef mudroom\n\n" + _BEGUN, 1)


def print_completions(
    asked: str, front: click.Command, commands: Mapping[str, click.Command]
) -> int:
    """Print the completions a shell asks for; the exit code. `asked`: such as "bash_complete"."""
    shell = asked.partition("_")[0]
    found = get_completion_class(shell)
    if found is None:
        return 1
    made: ShellComplete = found(_AllCommands(front, commands), {}, "mudroom", COMPLETION_VARIABLE)
    if shell == "bash":
        made = _Bash(made.cli, {}, "mudroom", COMPLETION_VARIABLE)
    print(made.complete())
    return 0


class _Bash(BashComplete):
    """Words that the shell joined with line feeds, since a word may have blanks in it."""

    @staticmethod
    def _check_version() -> None:
        """Our script needs nothing that an old bash lacks."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one that is typed, and that one."""
        words = os.environ["COMP_WORDS"].split("\n")
        at = int(os.environ["COMP_CWORD"])
        return words[1:at], words[at] if at < len(words) else ""


class _AllCommands(click.Group):
    """Flags of the command without a name, and the names of the others, as one tree."""

    def __init__(self, front: click.Command, commands: Mapping[str, click.Command]) -> None:
        super().__init__(
            "mudroom",
            commands=dict(commands),
            params=[p for p in front.params if isinstance(p, click.Option)],
        )
