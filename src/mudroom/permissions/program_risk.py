"""Risks of single commands: what programs run and write, and which similar ones are approved."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from .program_table import (
    APPROVALS,
    APPROVED_MODULES,
    APPROVED_RUNNERS,
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
    WRITING_PROGRAMS,
    Writing,
)
from .program_wrappers import find_git_command, get_program_name, strip_version
from .shell_words import Word

_SHELL_VARIABLE = re.compile(r"[a-z_][a-z0-9_]*")
_DATE_FORMAT = re.compile(r"\+.*|-u|-I\w*|--utc|--iso-8601(=\w+)?|-R")
# Only `p`, `d`, `q`, `=` and `s///` without the flags `e` and `w`, which run and write.
_HARMLESS_SED = re.compile(
    r"(?:\d+|\$)?(?:,(?:\d+|\$))?[pdq=]"
    r"|s([/|,#:@])(?:(?!\1)[^\\\n]|\\.)*\1(?:(?!\1)[^\\\n]|\\.)*\1[gpiI0-9]*"
)


def is_safe_variable(name: str, *, exported: bool) -> bool:
    """Return whether setting a variable, or exporting it, cannot change what later commands run."""
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
        if name != "printf" and _is_unclear(word):
            return f"{word.raw} could become a flag that makes {name} run or write something"
    for word in words[1:]:
        if word.value and re.fullmatch(risky_flag, word.value, re.DOTALL):
            return f"{name} {word.value} can run or write something"
    return ""


def _find_git_risk(words: Sequence[Word]) -> str:
    if any(map(_is_unclear, words[1:])):
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


_UNTOLD = "what it writes is known only when it runs"
_LISTED_ARCHIVE = re.compile(r"-?[vzjJa]*t[tvzjJa]*f?|--list")
_CREATED_ARCHIVE = re.compile(r"-?[vzjJa]*c[vzjJa]*f")
# The first `t` of a group of flags names the folder; what follows a flag with a value is the value.
_TARGET_FLAG = re.compile(r"(?s)-[^\WSgmo]*?t(.*)|--t[a-z-]*(?:=(.*))?")


class Writes(Struct, frozen=True):
    """The files a command changes.

    `folder` names the target folder, or the new name, of what is copied: the last component of
    each of `sources` becomes a name in it. `is_folder` is None if that depends on the file system,
    False if the names of the sources may not be used. `doubt` says why the words do not tell all.
    """

    targets: tuple[Word, ...] = ()
    folder: Word | None = None
    sources: tuple[Word, ...] = ()
    is_folder: bool | None = None
    is_recursive: bool = False
    doubt: str = ""


def find_writes(words: Sequence[Word]) -> Writes | None:
    name = get_program_name(words)
    arguments = list(words[1:])
    if name == "git":
        arguments = list(find_git_command(words))
        name = f"git {arguments.pop(0).value}" if arguments else name
    writing = WRITING_PROGRAMS.get(name)
    if writing is None:
        return None
    while arguments and arguments[-1].value in (";", "+", "{}"):  # the end of `find -exec`
        arguments.pop()
    if writing.operands == "unknown":
        return Writes(doubt=_UNTOLD)
    if writing.operands == "archive":
        return _find_archive(arguments)
    if writing.operands == "of=":
        return _find_dd_output(arguments)
    return _find_operands(name, writing, arguments)


def _find_operands(name: str, writing: Writing, arguments: Sequence[Word]) -> Writes:
    operands, folder, flags = _split_arguments(writing, arguments)
    named = [*operands, folder] if folder else operands
    unclear = filter(_is_unclear, named)
    doubt = next((f"{word.raw} is known only when it runs" for word in unclear), "")
    is_recursive = writing.recursive == ".*"
    for flag in flags:
        if writing.recursive and re.fullmatch(writing.recursive, flag):
            is_recursive = True
        elif not re.fullmatch(writing.flags, flag):
            doubt = doubt or f"{_UNTOLD} because of {flag}"
            operands.append(_get_flag_value(flag))
    if writing.operands == "downloads":
        operands += [_get_flag_value(flag) for flag in flags if "=" in flag]
        return _find_downloads(operands, doubt)
    if writing.operands == "packed":
        operands += [_strip_suffix(word) for word in operands]
    if writing.operands in ("all", "packed"):
        return Writes(tuple(operands), is_recursive=is_recursive, doubt=doubt)
    is_folder = True if folder is not None or len(operands) > 2 else None
    if folder is None and len(operands) > 1:
        folder = operands.pop()
        is_folder = is_folder or folder.raw.endswith("/") or None
    elif name == "ln" and folder is None:
        folder = Word(".", ".")
    targets = () if writing.operands == "last" else tuple(operands)
    return Writes(targets, folder, tuple(operands), is_folder, is_recursive, doubt)


def _split_arguments(
    writing: Writing, arguments: Sequence[Word]
) -> tuple[list[Word], Word | None, list[str]]:
    """Split arguments into operands, the target folder named by a flag, and flags."""
    operands: list[Word] = []
    flags: list[str] = []
    folder: Word | None = None
    waiting = iter(arguments)
    for word in waiting:
        value = word.value or ""
        if value == "--":
            operands += waiting
        elif not value.startswith("-") or value == "-":
            operands.append(word)
        elif writing.operands in ("last", "moved") and (target := _TARGET_FLAG.fullmatch(value)):
            text = target[1] or target[2]
            folder = Word(text, text) if text else next(waiting, None)
        else:
            flags.append(value)
    return operands, folder, flags


def _get_flag_value(flag: str) -> Word:
    value = flag.partition("=")[2] if "=" in flag else flag[2:]
    return Word(value, value)


def _find_downloads(operands: Sequence[Word], doubt: str) -> Writes:
    """Find the files of a download. Addresses may contain ranges and encoded characters."""
    addresses = tuple(word for word in operands if "://" in word.raw)
    if not all(re.fullmatch(r"[^%{\[#]*", word.value or "%") for word in operands):
        doubt = doubt or _UNTOLD
    # The local name comes from the address, but the server may suggest another: hence
    # is_folder=False.
    targets = tuple(word for word in operands if "://" not in word.raw)
    return Writes(targets, Word(".", "."), addresses, is_folder=False, doubt=doubt)


def _strip_suffix(word: Word) -> Word:
    text = (word.value or word.raw).rpartition(".")[0]
    return Word(text, text if word.value is not None else None)


def _find_archive(arguments: Sequence[Word]) -> Writes:
    first = arguments[0].value or "" if arguments else ""
    if _LISTED_ARCHIVE.fullmatch(first):
        return Writes()
    if _CREATED_ARCHIVE.fullmatch(first) and len(arguments) > 1:
        flags = [word.value or "-" for word in arguments[2:]]
        has_flags = any(value.startswith("-") and value != "--" for value in flags)
        return Writes((arguments[1],), doubt=_UNTOLD if has_flags else "")
    return Writes(doubt=_UNTOLD)


def _find_dd_output(arguments: Sequence[Word]) -> Writes:
    doubt = ""
    targets: list[Word] = []
    for word in arguments:
        if word.value is None:
            doubt = f"{word.raw} is known only when it runs"
        elif word.value.startswith("of="):
            targets.append(Word(word.raw, word.value[3:]))
    return Writes(tuple(targets), doubt=doubt)


def _is_unclear(word: Word) -> bool:
    """Return whether a word could turn into a flag when bash expands it.

    It cannot if it starts with a letter or a folder, or is a process substitution.
    """
    if word.value is not None or word.raw.startswith("<("):
        return False
    if "$" in word.raw or "`" in word.raw:
        return True
    return not re.match(r"[\w./~][\w./]*[*?\[]", word.raw)


def find_approved_prefix(words: Sequence[Word]) -> str:
    """Find the first words of a command, if approving it covers similar arguments.

    These are its program with subcommand or module. "" if the command could run something else, or
    its arguments are not known to be harmless.
    """
    values = [word.value for word in words]
    if (values[0], *values[1:2]) in APPROVED_RUNNERS:
        inner = find_approved_prefix(words[2:]) if words[2:] else ""
        return f"{values[0]} {values[1]} {inner}" if inner else ""
    is_python = strip_version(get_program_name(words)) == "python"
    if is_python and values[1:2] == ["-m"] and words[2:]:
        inner = find_approved_prefix(words[2:]) if values[2] in APPROVED_MODULES else ""
        return f"{values[0]} -m {inner}" if inner else ""
    for count in (2, 1):
        prefix = " ".join(value or "?" for value in values[:count])
        if prefix in APPROVALS and len(values) >= count:
            return prefix if _covers(prefix, words[count:]) else ""
    return ""


def _covers(prefix: str, arguments: Sequence[Word]) -> bool:
    approval = APPROVALS[prefix]
    if any(map(_is_unclear, arguments)):
        return False
    values = [word.raw if word.value is None else word.value for word in arguments]
    flags = [value for value in values if value.startswith("-")]
    operands = [value for value in values if not value.startswith("-")]
    return (
        all(re.fullmatch(approval.flags, flag) for flag in flags)
        # Many programs read options from `@file`; cargo picks another toolchain with `+name`.
        and not any(operand.startswith(("@", "+")) for operand in operands)
        and bool(re.fullmatch(approval.operands, " ".join(operands), re.DOTALL))
    )
