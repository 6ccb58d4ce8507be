"""Where the program begins and ends: every error becomes one clear line and an exit code, never a traceback."""

from __future__ import annotations

import os
import sys

from .._version import __version__

DEBUG_VARIABLE = "MUDROOM_DEBUG"
"""Environment variable: show tracebacks."""


def main(arguments: list[str] | None = None) -> None:
    """Run a command line, by default this process's own, and exit with its code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments in (
        ["--version"],
        ["-V"],
        ["-v"],
    ):  # asked by scripts, often: not worth the cost of any import
        print(f"mudroom {__version__}")
        return
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        getattr(sys, name).reconfigure(errors="replace")
    try:
        code = run(arguments)
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run a command line; the exit code: 0 done, 1 failed, 2 wrong usage, 75 try later, 130 and 143 stopped by a signal."""
    from click.exceptions import Exit

    from .output.progress import discard_stdout, print_notice

    try:
        code = _invoke(arguments)
        sys.stdout.flush()
        return code
    except Exit as early:
        return early.exit_code
    except Exception as error:  # noqa: BLE001  the last line of defence: a person gets a sentence, not a stack
        if os.environ.get(DEBUG_VARIABLE):
            import traceback

            traceback.print_exc()
        text, code = _message_and_code(error)
        if text:
            print_notice(text)
        if isinstance(error, OSError):
            discard_stdout()
        return code


def _message_and_code(error: Exception) -> tuple[str, int]:
    """What to say of an error, "" for nothing, and the exit code."""
    from click import ClickException

    from ..errors import ModelUnavailable, MudroomError, UsageError

    match error:
        case ClickException():
            return f"{error.format_message()} (mudroom help)", 2
        case UsageError():
            return str(error), 2
        case ModelUnavailable():
            return str(error), 75
        case MudroomError():
            return str(error), 1
        case BrokenPipeError():
            return "", 0
        case OSError(strerror=str(words)):
            return f"{words}: {error.filename}" if error.filename else words, 1
        case _:
            return (
                f"{type(error).__name__}: {error}. This is a fault of mudroom's; {DEBUG_VARIABLE}=1 shows where it arose.",
                1,
            )


def _invoke(arguments: list[str]) -> int:
    from .commands.root import COMMANDS, root_command

    if asked := os.environ.get("_MUDROOM_COMPLETE"):
        from .commands.shell_completion import print_completions

        return print_completions(asked, root_command, COMMANDS)
    if arguments and arguments[0] in COMMANDS:
        command, name, rest = COMMANDS[arguments[0]], f"mudroom {arguments[0]}", arguments[1:]
    else:
        command, name, rest = root_command, "mudroom", arguments
    with command.make_context(name, list(rest)) as context:
        return command.invoke(context)
