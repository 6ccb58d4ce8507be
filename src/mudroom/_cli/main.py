"""The program's entry point: each error becomes one line on stderr and an exit code."""

from __future__ import annotations

import errno
import io
import os
import sys

from .._platform.own_process import collect_garbage_less_often, raise_open_file_limit
from .._version import __version__
from .output.standard_output import STREAM_NAMES, discard_stdout, make_streams_safe

# With this environment variable, errors come with tracebacks.
DEBUG_VARIABLE = "MUDROOM_DEBUG"

_VERSION_FLAGS = ("--version", "-V", "-v")


def main(arguments: list[str] | None = None) -> None:
    if arguments is None:
        arguments = sys.argv[1:]
    if len(arguments) == 1 and arguments[0] in _VERSION_FLAGS:  # fast: no imports
        if code := _print_version():
            sys.exit(code)
        return
    collect_garbage_less_often()
    raise_open_file_limit()
    _replace_closed_streams()
    try:
        make_streams_safe()
        code = run(arguments)
    except KeyboardInterrupt:
        code = 130
    except ModuleNotFoundError as error:  # from the imports that all commands need
        # The original stream, because the safe one also imports the package.
        stream = sys.__stderr__ or sys.stderr
        print(f"mudroom: {_describe_missing_package(error)}", file=stream, flush=True)
        code = 1
    if code > 128:
        _exit_after_signal(code)
    sys.exit(code)


def _print_version() -> int:
    _replace_closed_streams()
    try:
        print(f"mudroom {__version__}", flush=True)
    except BrokenPipeError:
        discard_stdout()
    except OSError as error:
        discard_stdout()
        print(f"mudroom: stdout cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def _replace_closed_streams() -> None:
    # Reopen what the parent process closed, so that no other file gets its number.
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        # Writes must fail, so that no answer is silently lost.
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _exit_after_signal(code: int) -> None:
    # The interpreter's clean-up would restore the default signal handlers, and a second signal
    # would then replace the exit code.
    from contextlib import suppress

    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


_PATH_ERRORS = (errno.EINVAL, errno.ELOOP, errno.ENOTDIR, errno.ESTALE)
_PATH_REMEDY = (
    "Something on this path is no folder, leads in a circle, or was exchanged while it was opened. "
    "Look at it, then try again."
)


def run(arguments: list[str]) -> int:
    """Run a command line and return its exit code.

    The codes: 0 done, 1 failed, 2 wrong usage, 75 try again later, 130 and 143 stopped by a signal.
    """
    from click.exceptions import Exit

    from .output.progress import print_notice

    try:
        try:
            code = _invoke(arguments)
        except Exit as early_exit:
            code = early_exit.exit_code
        sys.stdout.flush()
        return code
    except Exception as error:  # noqa: BLE001  the user gets a sentence, not a traceback
        if os.environ.get(DEBUG_VARIABLE):
            import traceback

            traceback.print_exc()
        text, code = _describe_error(error)
        if text:
            print_notice(text)
        if isinstance(error, OSError):
            # Flushing these again at exit would fail again.
            discard_stdout()
        return code


def _explain_system_error(error: OSError, reason: str) -> str:
    if error.filename in STREAM_NAMES:
        return f"{error.filename} cannot be written: {reason}"
    if error.errno in _PATH_ERRORS and isinstance(error.filename, str):
        return f"{reason}: {error.filename}. {_PATH_REMEDY}"
    return f"{reason}: {error.filename}" if error.filename else reason


def _describe_error(error: Exception) -> tuple[str, int]:
    """Return the message to print for an error ("" for none) and the exit code."""
    from click import ClickException

    from ..errors import ModelUnavailable, MudroomError, UsageError, shorten_text

    match error:
        case ClickException():
            from .commands._command_line import describe_usage_error

            return shorten_text(describe_usage_error(error), 4_000), 2
        case UsageError():
            return str(error), 2
        case ModelUnavailable():
            return str(error), 75
        case MudroomError():
            return str(error), 1
        case ModuleNotFoundError():
            return _describe_missing_package(error), 1
        case BrokenPipeError():
            # The reader, such as head, has seen enough.
            return "", 0
        case FileNotFoundError() if not _has_current_folder():
            text = "the current folder does not exist any more"
            return f"{text}. Change to another folder, or name one with -C.", 1
        case OSError(strerror=str(reason)):
            return _explain_system_error(error, reason), 1
        case _:
            remedy = f"Run it again with {DEBUG_VARIABLE}=1 for a traceback."
            return f"{type(error).__name__}: {error}. This is a bug in mudroom. {remedy}", 1


def _describe_missing_package(error: ModuleNotFoundError) -> str:
    remedy = "Install mudroom again with its dependencies: pip install --force-reinstall mudroom"
    package = (error.name or str(error)).partition(".")[0]
    return f"the package {package} is not installed. {remedy}"


def _has_current_folder() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _invoke(arguments: list[str]) -> int:
    from .commands._command_line import ALL_COMMANDS, apply_leading_options
    from .commands.root import root_command

    if instruction := os.environ.get("_MUDROOM_COMPLETE"):
        from .actions.shell_completion import print_completions

        return print_completions(instruction, root_command, ALL_COMMANDS)
    arguments = apply_leading_options(arguments, root_command, ALL_COMMANDS)
    if arguments and arguments[0] in ALL_COMMANDS:
        command = ALL_COMMANDS[arguments[0]]
        name = f"mudroom {arguments[0]}"
        rest = arguments[1:]
    else:
        command = root_command
        name = "mudroom"
        rest = arguments
    with command.make_context(name, rest) as context:
        return command.invoke(context)
