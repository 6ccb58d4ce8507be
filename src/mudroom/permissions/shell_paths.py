"""The files that words of a shell command may name."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

from .path_rules import PathContext
from .program_wrappers import get_program_name
from .shell_words import SimpleCommand, Word

# Nested braces and wildcards multiply.
_MAX_ALTERNATIVES = 64
_MAX_MATCHES = 1000
# Characters after which programs read a path, or before which a path ends.
_SIGN = re.compile("[=:@<,]")
# Characters of a word of short flags after which a path may begin, as in `-xf/tmp/a`.
_MAX_FLAGS = 64
# Spellings of the home folder (group 1) and of the current folder.
_FOLDER_VARIABLES = re.compile(r"\$(?:(HOME\b|\{HOME\})|PWD\b|\{PWD\})|^~\+(?=/|$)")


class CommandPaths:
    """The paths that words of a command line may name. Locations are cached, since words repeat.

    Use a new object for each judgement, because links may change in between.
    """

    def __init__(self, context: PathContext) -> None:
        self._context = context
        self._cache: dict[tuple[str, str], tuple[str, ...]] = {}

    def list_locations(self, path: str, folders: Sequence[str]) -> Iterator[str]:
        """Yield a path's absolute form and its target, relative to each folder."""
        for folder in folders:
            if (path, folder) not in self._cache:
                self._cache[path, folder] = self._context.resolve_links(path, folder)
            yield from self._cache[path, folder]

    def list_possible_paths(self, word: Word, folders: Sequence[str]) -> Iterator[str]:
        """Yield the paths a word may name.

        These are the word itself, parts that programs read as a path (`--file=x`, `-fx`, `@x`,
        `HEAD:x`), and a pattern's current matches.
        """
        if word.value is not None:
            yield from list_named_paths(word.value)
            return
        text = _FOLDER_VARIABLES.sub(
            lambda variable: self._context.user_home if variable[1] else ".",
            re.sub(r"['\"]|\\(?!\n)", "", word.raw),
        )
        if re.search(r"[$`]", text):
            text = re.split(r"[$`]", text)[-1].partition("/")[2]
        for path in islice(expand_braces(text), _MAX_ALTERNATIVES if text else 0):
            yield from list_named_paths(path)
            if not has_wildcard(path):
                continue
            for folder in folders:
                yield from islice(
                    glob.iglob(self._context.make_absolute(path, folder)), _MAX_MATCHES
                )


def has_wildcard(path: str) -> bool:
    """Return whether bash or git may expand a path to others."""
    return bool(re.search(r"[*?\[]", path))


def list_named_paths(text: str) -> Iterator[str]:
    """Yield the paths programs may see in a word, the word itself first."""
    yield text
    starts = [0]
    for sign in _SIGN.finditer(text):
        rest = text[sign.end() :]
        starts.append(sign.end())
        if sign[0] == ":" and "://" not in text:  # relative to the root of a repository
            yield from filter(None, [rest.lstrip("/")])
        yield from filter(None, [rest])
    for start in starts:
        piece = _SIGN.split(text[start:], maxsplit=1)[0]
        yield from filter(None, [piece])
        if start == 0 and re.match(r"-[^-]", piece):
            yield from (piece[at:] for at in range(2, min(len(piece), _MAX_FLAGS)))


def find_working_folders(commands: Sequence[SimpleCommand]) -> tuple[str, ...]:
    """Return the folders, relative to the workspace, in which commands may run.

    These are the workspace itself ("") and the target of each `cd`, since any `cd` may fail.
    """
    folders = [""]
    for command in commands:
        if get_program_name(command.words) not in ("cd", "pushd", "popd"):
            continue
        target = (command.words[-1].value or "") if len(command.words) > 1 else ""
        if not target.startswith("~"):
            target = os.path.normpath(os.path.join(folders[-1], target))
        folders.append(target)
    return tuple(dict.fromkeys(folders))


def find_unknown_folder(commands: Sequence[SimpleCommand]) -> str:
    """Return a command that changes to a folder only bash knows, "" if there is none."""
    for command in commands:
        name = get_program_name(command.words)
        targets = [word.value for word in command.words[1:]]
        if name == "popd" or (name in ("cd", "pushd") and (None in targets or "-" in targets)):
            return command.text
    return ""


def find_option_folders(words: Sequence[Word]) -> Iterator[str]:
    """Yield the working folders set by options, as for git, env, make and tar."""
    for word in words:
        joined = re.fullmatch(r"(?:-C|--(?:chdir|directory|cwd)=)(.+)", word.value or "")
        if joined:
            yield joined[1]
    for option, word in pairwise(words):
        if option.value in ("-C", "--chdir", "--directory", "--cwd") and word.value:
            yield word.value


def expand_braces(text: str) -> Iterator[str]:
    """Yield the expansions of braces with commas."""
    braces = re.search(r"\{([^{}]*,[^{}]*)\}", text)
    if braces is None:
        yield text
        return
    for choice in braces[1].split(","):
        yield from expand_braces(text[: braces.start()] + choice + text[braces.end() :])
