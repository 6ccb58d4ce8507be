"""Judges the files a command may name and change: protected ones, and unknown ones."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import islice, pairwise

from .._platform.protected_names import OWN_PREFIX, PROTECTED_NAMES, is_protected
from .path_rules import PathContext
from .program_risk import Writes, find_writes, is_read_only
from .program_table import GIT_READING_COMMANDS
from .program_wrappers import find_git_command, get_program_name
from .shell_words import SimpleCommand, Word, split_word_set

# Entries to examine in folders that a command may change; with more, no rule can allow it.
MAX_ENTRIES = 10_000
# Git commands that do not change the files they name.
_GIT_NAMING_COMMANDS = GIT_READING_COMMANDS | split_word_set("add commit push fetch ls-remote")


class WriteJudge:
    """Finds what a command's words say about the files it changes.

    Use a new object for each judgement, as with CommandPaths.
    """

    def __init__(self, context: PathContext, paths: CommandPaths) -> None:
        self._context = context
        self.paths = paths

    def find_protected(self, words: Sequence[Word], folders: Sequence[str]) -> str:
        """Find a protected name the command certainly changes, "" if there is none."""
        writes = find_writes(words)
        if writes is None:
            return ""
        targets = [*writes.targets, writes.folder] if writes.folder else writes.targets
        names = [word.value for word in targets if word.value]
        if self._is_folder(writes, folders):
            names += self._list_copies(writes, folders)
        return self._find_name(names, folders, patterns=False)

    def find_doubt(self, words: Sequence[Word], folders: Sequence[str]) -> str:
        """Explain why a command may change a protected file; "" if its words rule that out.

        A program known neither to read nor to write may change every file it names.
        """
        writes = find_writes(words)
        if writes is None:
            if is_read_only(words) or _only_names_files(words):
                return ""
            named = [path for word in words[1:] for path in self._list_paths(word, folders)]
            name = self._find_name([*named, "."], folders)
            return f"it names {name}, which is protected" if name else ""
        if writes.doubt:
            return writes.doubt
        entries = list(islice(self.list_changed(words, folders), MAX_ENTRIES + 1))
        if len(entries) > MAX_ENTRIES:
            return "it changes a folder with too many files to look at"
        name = self._find_name(entries, folders)
        return f"it may change {name}, which is protected" if name else ""

    def list_changed(self, words: Sequence[Word], folders: Sequence[str]) -> Iterator[str]:
        """Yield the paths a command may change, including those inside folders it changes."""
        writes = find_writes(words)
        if writes is None:
            return
        for word in writes.targets:
            for path in self._list_paths(word, folders):
                yield path
                if writes.is_recursive:
                    yield from self._walk(path, folders)
        if writes.folder:
            yield from self._list_paths(writes.folder, folders)
            yield from self._list_copies(writes, folders)

    def _list_paths(self, word: Word, folders: Sequence[str]) -> list[str]:
        return list(self.paths.list_possible_paths(word, folders))

    def _walk(self, path: str, folders: Sequence[str]) -> Iterator[str]:
        for folder in folders:
            start = self._context.make_absolute(path, folder)
            if os.path.islink(start):
                continue
            for place, names, files in os.walk(start):
                yield from (os.path.join(place, name) for name in (*names, *files))

    def _list_copies(self, writes: Writes, folders: Sequence[str]) -> Iterator[str]:
        if writes.folder is None:
            return
        for target in self._list_paths(writes.folder, folders):
            if self._is_file(target, folders):
                continue
            for source in writes.sources:
                for path in self._list_paths(source, folders):
                    name = path.rstrip("/").rpartition("/")[2]
                    if name not in ("", ".", ".."):
                        yield f"{target}/{name}"
                    if "://" in path:
                        yield f"{target}/{name.partition('?')[0]}"

    def _is_folder(self, writes: Writes, folders: Sequence[str]) -> bool:
        if writes.is_folder is not None:
            return writes.is_folder
        target = writes.folder.value if writes.folder else None
        return bool(target) and any(
            os.path.isdir(self._context.make_absolute(target or "", folder)) for folder in folders
        )

    def _is_file(self, path: str, folders: Sequence[str]) -> bool:
        return all(os.path.isfile(self._context.make_absolute(path, folder)) for folder in folders)

    def _find_name(
        self, paths: Iterable[str], folders: Sequence[str], *, patterns: bool = True
    ) -> str:
        """Find the first protected component of the paths or of what they lead to.

        With `patterns`, a component with wildcards counts if it could match a protected name.
        """
        for path in dict.fromkeys(paths):
            for location in self.paths.list_locations(path, folders):
                for name in self._context.make_relative(location).split("/"):
                    if is_protected(name) or (patterns and _could_be_protected(name)):
                        return name
        return ""


def _only_names_files(words: Sequence[Word]) -> bool:
    if get_program_name(words) != "git":
        return False
    command = find_git_command(words)
    return bool(command) and command[0].value in _GIT_NAMING_COMMANDS


def _could_be_protected(pattern: str) -> bool:
    """Return whether a bash pattern could match a protected name; all of them start with a dot."""
    if not pattern.startswith(".") or not re.search(r"[*?\[]", pattern):
        return False
    folded = pattern.casefold()
    start = re.split(r"[*?\[]", folded)[0]
    names = (*PROTECTED_NAMES, OWN_PREFIX)
    return start.startswith(OWN_PREFIX) or any(fnmatchcase(name, folded) for name in names)


# Nested braces and wildcards multiply.
_MAX_ALTERNATIVES = 64
_MAX_MATCHES = 1000
# Characters after which programs read a path, or before which a path ends.
_SIGN = re.compile("[=:@<,]")
# Characters in a word of short flags after which a path may begin, as in `-xf/tmp/a`.
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
    """Find the folders, relative to the workspace, where commands may run.

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
    """Find a command that changes to a folder only bash knows, "" if there is none."""
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
    braces = re.search(r"\{([^{}]*,[^{}]*)\}", text)
    if braces is None:
        yield text
        return
    for choice in braces[1].split(","):
        yield from expand_braces(text[: braces.start()] + choice + text[braces.end() :])
