"""Where the program begins and ends: every error becomes one clear line and an exit code, never a traceback."""

from __future__ import annotations

import os
import sys

from .._version import __version__

DEBUG = "MUDROOM_DEBUG"
"""Environment variable: show tracebacks."""


def main() -> None:
    """Run the command line of this process and exit with its code."""
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"], ["-v"]):  # asked by scripts, often: not worth the cost of any import
        print(f"mudroom {__version__}")
        return
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    sys.exit(run(arguments))


def run(arguments: list[str]) -> int:
    """Run a command line; the exit code: 0 done, 1 failed, 2 wrong usage, 75 try later, 130 and 143 stopped by a signal."""
    import click

    from ..errors import ModelUnavailable, MudroomError, UsageError

    try:
        code = _invoke(arguments)
        sys.stdout.flush()
        return code
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.ClickException as error:
        return _complain(f"{error.format_message()} (mudroom help)", 2)
    except UsageError as error:
        return _complain(str(error), 2)
    except ModelUnavailable as error:
        return _complain(str(error), 75)
    except MudroomError as error:
        return _complain(str(error), 1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001  the last line of defence: a person gets a sentence, not a stack
        remedy = f"This is a fault of mudroom's; {DEBUG}=1 shows where it arose."
        return _complain(f"{type(error).__name__}: {error}. {remedy}", 1)


def _invoke(arguments: list[str]) -> int:
    from .options import COMMANDS, front

    if arguments and arguments[0] in COMMANDS:
        command, name, rest = COMMANDS[arguments[0]], f"mudroom {arguments[0]}", arguments[1:]
    else:
        command, name, rest = front, "mudroom", arguments
    with command.make_context(name, list(rest)) as context:
        return command.invoke(context)


def _complain(text: str, code: int) -> int:
    from .screens import say

    if os.environ.get(DEBUG):
        import traceback

        traceback.print_exc()
    say(text)
    return code
