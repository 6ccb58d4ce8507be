"""Risks of single commands: what programs may run or write unexpectedly."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .program_table import (
    FILELESS_PROGRAMS,
    FOLDER_PROGRAMS,
    GIT_COMMAND_FLAGS,
    GIT_LISTING_ARGUMENTS,
    GIT_PLAIN_COMMANDS,
    GIT_READING_COMMANDS,
    GIT_RISKY_FLAG,
    INTERPRETERS,
    NEVER_ALLOWED,
    PACKAGE_RUNNERS,
    READING_PROGRAMS,
    RISKY_FLAGS,
    RUNNERS,
    SAFE_VARIABLE,
    SHELLS,
    VERSION_PROGRAMS,
)
from .program_wrappers import find_git_command, get_program_name, strip_version
from .program_writes import starts_plainly
from .shell_words import Word

_SHELL_VARIABLE = re.compile(r"[a-z_][a-z0-9_]*")
_DATE_FORMAT = re.compile(r"\+.*|-u|-I\w*|--utc|--iso-8601(=\w+)?|-R")
# Only `p`, `d`, `q`, `=` and `s///` without the flags `e` and `w`, which run and write.
_HARMLESS_SED = re.compile(
    r"(?:\d+|\$)?(?:,(?:\d+|\$))?[pdq=]"
    r"|s([/|,#:@])(?:(?!\1)[^\\\n]|\\.)*\1(?:(?!\1)[^\\\n]|\\.)*\1[gpiI0-9]*"
)


def is_safe_variable(name: str, *, exported: bool) -> bool:
    """Return whether setting a variable cannot change what later commands run.

    Arguments:
        exported: true if it is set for a command, not only in the shell.
    """
    if SAFE_VARIABLE.fullmatch(name):
        return True
    return not exported and bool(_SHELL_VARIABLE.fullmatch(name)) and not name.endswith("_proxy")


def find_risk(words: Sequence[Word]) -> str:
    """Explain why a command's name is not enough to allow it; "" if it is."""
    name = get_program_name(words)
    if not name:
        return "which program it runs is known only when it runs"
    if name in NEVER_ALLOWED or name in SHELLS or _runs_arguments(words):
        return f"{name} runs what it is given"
    arguments = [word.value for word in words[1:]]
    if name == "git":
        return _find_git_risk(words)
    if strip_version(name) in INTERPRETERS:
        return _find_interpreter_risk(name, arguments)
    if name == "sed":
        return _find_sed_risk(arguments)
    if name in ("test", "["):
        return _find_test_risk(words)
    return _find_flag_risk(words)


def _runs_arguments(words: Sequence[Word]) -> bool:
    name = get_program_name(words)
    if name not in RUNNERS - PACKAGE_RUNNERS or len(words) < 2:
        return False
    return name != "command" or words[1].value not in ("-v", "-V")


def _find_flag_risk(words: Sequence[Word]) -> str:
    name = get_program_name(words)
    risky_flag = RISKY_FLAGS.get(name)
    if risky_flag is None:
        return ""
    for word in words[1:]:
        if name != "printf" and word.value is None and not starts_plainly(word):
            return f"{word.raw} could become a flag that makes {name} run or write something"
    for word in words[1:]:
        if word.value and re.fullmatch(risky_flag, word.value, re.DOTALL):
            return f"{name} {word.value} can run or write something"
    return ""


def _find_git_risk(words: Sequence[Word]) -> str:
    if any(word.value is None and not starts_plainly(word) for word in words[1:]):
        return "a word of this git command could become a flag that runs or writes something"
    arguments = [word.value for word in words[1:]]
    # A transport such as `ext::sh -c …`, in a URL or the value of a setting, is a program.
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    for value in options:
        if value and (GIT_RISKY_FLAG.fullmatch(value) or re.search(r"(?:^|=)[\w-]+::", value)):
            return f"git {value} can run or write something"
    command = [word.value for word in find_git_command(words)]
    if not command:
        return ""
    name = command[0] or ""
    risky_flag = GIT_COMMAND_FLAGS.get(name, "(?!)")
    for value in command[1:]:
        if value and re.fullmatch(risky_flag, value, re.DOTALL):
            return f"git {name} {value} can run something"
    return "" if name in GIT_PLAIN_COMMANDS else f"git {name} can run something"


def _find_interpreter_risk(name: str, arguments: Sequence[str | None]) -> str:
    if "awk" in name:
        return f"{name} can run and write what its program says"
    first = arguments[0] if arguments else ""
    if first in ("-m", "--version", "-V") or (first and not first.startswith("-")):
        return ""
    return f"{name} runs code that is not judged"


def _find_sed_risk(arguments: Sequence[str | None]) -> str:
    known = [value for value in arguments if value is not None]
    if len(known) < len(arguments):
        return "a word of this sed command is known only when it runs"
    flags = [value for value in known if value.startswith("-")]
    scripts = [value for value in known if value and not value.startswith("-")][:1]
    is_harmless = (
        all(flag in ("-n", "-E", "-r", "-e") for flag in flags)
        and flags.count("-e") <= 1
        and all(_HARMLESS_SED.fullmatch(script) for script in scripts)
    )
    return "" if is_harmless else "this sed command may write or run something"


def _find_test_risk(words: Sequence[Word]) -> str:
    """Judge `test` and `[`, whose `-v` and `-R` run substitutions in an array's index."""
    unsafe = ("-v", "-R")
    operands = [word for word in words[1:] if word.value not in ("]", "!")]
    is_known = len(operands) < 2
    if len(operands) == 2:
        is_known = operands[0].value not in (None, *unsafe)
    if len(operands) == 3:
        is_known = operands[1].value is not None
    if is_known and not any(word.value in unsafe for word in operands):
        return ""
    return "this test is not understood"


def is_read_only(words: Sequence[Word]) -> bool:
    """Return whether a command changes nothing and runs nothing else."""
    name = words[0].value if words else None
    if not name or find_risk(words):
        return False
    arguments = [word.value or "" for word in words[1:]]
    if name == "cd":
        return len(arguments) == 1 and bool(arguments[0]) and not arguments[0].startswith("-")
    if name in READING_PROGRAMS | FILELESS_PROGRAMS:
        return True
    if arguments in (["--version"], ["-V"]) and strip_version(name) in VERSION_PROGRAMS:
        return True
    if name == "git":
        return _git_reads_only(arguments)
    if name == "command":
        return arguments[:1] in (["-v"], ["-V"])
    if name in ("sed", "find", "sort", "tree", "file"):
        return True
    return name == "date" and all(_DATE_FORMAT.fullmatch(value) for value in arguments)


def obeys_folder(words: Sequence[Word]) -> bool:
    """Return whether files in the working folder decide what a reading command runs."""
    name = strip_version(get_program_name(words))
    return name in FOLDER_PROGRAMS and not (name == "git" and words[1].value == "--version")


def _git_reads_only(arguments: Sequence[str]) -> bool:
    ignored = ("--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs")
    while arguments and arguments[0] in ignored:
        arguments = arguments[1:]
    if not arguments:
        return False
    name = arguments[0]
    if name in GIT_LISTING_ARGUMENTS:
        return all(value in GIT_LISTING_ARGUMENTS[name] for value in (arguments[1:] or [""]))
    return name in GIT_READING_COMMANDS
