"""The files a command changes, as far as its words tell."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from .program_table import WRITING_PROGRAMS, Writing
from .program_wrappers import find_git_command, get_program_name
from .shell_words import Word

_UNTOLD = "what it writes is known only when it runs"
_LISTED_ARCHIVE = re.compile(r"-?[vzjJa]*t[tvzjJa]*f?|--list")
_CREATED_ARCHIVE = re.compile(r"-?[vzjJa]*c[vzjJa]*f")
# The first `t` of a group of flags names the folder; what follows a flag with a value is the value.
_TARGET_FLAG = re.compile(r"(?s)-[^\WSgmo]*?t(.*)|--t[a-z-]*(?:=(.*))?")


class Writes(Struct, frozen=True):
    """The files a command changes.

    Arguments:
        targets: the words that name them.
        folder: the word that names the target folder, or the new name, of what is copied; or None.
        sources: the words whose last component becomes a name in the folder.
        is_folder: true if `folder` is a folder; None if that depends on the file system, False if
            the names of the sources may not be used.
        is_recursive: true if the contents of the targets change as well.
        doubt: why the words do not tell everything, "" if they do.
    """

    targets: tuple[Word, ...] = ()
    folder: Word | None = None
    sources: tuple[Word, ...] = ()
    is_folder: bool | None = None
    is_recursive: bool = False
    doubt: str = ""


def find_writes(words: Sequence[Word]) -> Writes | None:
    """Find the files a command changes, None for a program not in the table."""
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
    doubt = next((f"{word.raw} is known only when it runs" for word in _list_unclear(named)), "")
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


def _list_unclear(words: Sequence[Word]) -> list[Word]:
    return [word for word in words if word.value is None and not starts_plainly(word)]


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


def starts_plainly(word: Word) -> bool:
    """Return whether an unknown word cannot turn into a flag.

    It starts with a letter or a folder, or is a process substitution.
    """
    if word.raw.startswith("<("):
        return True
    if "$" in word.raw or "`" in word.raw:
        return False
    return bool(re.match(r"[\w./~][\w./]*[*?\[]", word.raw))
