"""Shell commands judged: every simple command, every redirect, and whatever the parser is not sure of."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

from .._platform.protected_names import find_protected_component
from .path_rules import PathContext, matches_file
from .program_table import (
    FILELESS_PROGRAMS,
    SAFE_VARIABLES,
    SHELLS,
    expand_commands,
    extract_texts,
    find_risk,
    is_read_only,
    program_name,
    strip_wrappers,
)
from .rules import (
    ALLOW,
    ASK,
    DENY,
    EDIT,
    READ,
    RUN,
    UNDECIDED,
    CallFinding,
    Rule,
    is_literal,
    matches_pattern,
)
from .shell_parser import parse_command
from .shell_words import Redirect, Script, SimpleCommand, Word

MAX_SHELL_DEPTH = 4
"""Levels of shells in shells that are looked into."""
MAX_FOLDERS = 16
"""Folders that a command may go to before it is doubted."""
_DEVICE_FILES = re.compile(r"/dev/(null|stdout|stderr|fd/\d+|tty)")
_PLAIN_VARIABLE = re.compile(r"[a-z_][a-z0-9_]*")
_DECLARATIONS = {"export", "local", "readonly", "declare", "typeset"}
_FOLDER_VARIABLES = re.compile(r"\$(?:(HOME\b|\{HOME\})|PWD\b|\{PWD\})|^~\+(?=/|$)")
"""Spellings of the home folder, and of the one a command is in."""
_COMMAND_SEPARATORS = re.compile(r"[;&|\n(){}`]|\$\(")


class CommandJudge:
    """Judges commands by the rules about bash, and their files by the rules about files.

    Arguments:
        rules: all of the session. place: where relative paths begin.
        reading: whether what only reads the workspace needs no rule.
    """

    def __init__(
        self, rules: Sequence[Rule], place: PathContext, *, allow_reading: bool = True
    ) -> None:
        self._place, self._reading = place, allow_reading
        self._location_cache: dict[tuple[str, str], tuple[str, ...]] = {}
        self._bash = {
            verdict: [rule for rule in rules if rule.verdict == verdict and rule.applies_to("bash")]
            for verdict in (DENY, ASK, ALLOW)
        }
        self._files = [
            rule
            for rule in rules
            if rule.spec and rule.tool in ("read", "edit", "write", "glob", "grep")
        ]
        self.has_restrictions = any(self._bash[verdict] for verdict in (DENY, ASK)) or any(
            rule.verdict != ALLOW for rule in self._files
        )
        """Whether a rule forbids or asks for any command, so that one that cannot be read could be it."""

    def judge(self, command: str) -> list[CallFinding]:
        """What is known of each part, in order; never empty."""
        self._location_cache = {}
        script = parse_command(command)
        everything = list(self._all_commands(script, command))
        within = _working_folders(everything)
        barred = [
            found for part in everything if (found := self._restriction(part, within[:MAX_FOLDERS]))
        ]
        if any(found.verdict == DENY for found in barred):
            return barred
        if bare := next((rule for rule in self._bash[ALLOW] if not rule.spec), None):
            return barred or [CallFinding(ALLOW, RUN, "a rule allows every command", bare, command)]
        verdict = ASK if self.has_restrictions else UNDECIDED
        far = ["it goes to too many folders"] if len(within) > MAX_FOLDERS else []
        doubts = [
            CallFinding(verdict, RUN, f"the command cannot be judged: {why}", command=command)
            for why in (*script.doubts, *far)
        ]
        folders = _working_folders(script.commands)[:MAX_FOLDERS]
        judged = [
            finding
            for part in script.commands
            for finding in self._judge_command(part, folders, MAX_SHELL_DEPTH)
        ]
        return [*barred, *doubts, *judged] or [
            CallFinding(ALLOW, READ, "it does nothing", command=command)
        ]

    def _all_commands(
        self, script: Script, source: str, depth: int = MAX_SHELL_DEPTH
    ) -> Iterator[SimpleCommand]:
        """All commands, those inside the words of others too; of a text that was not understood, whatever looks like one."""
        for command in script.commands:
            yield command
            for text in extract_texts(command) if depth else ():
                yield from self._all_commands(parse_command(text), text, depth - 1)
        if script.doubts:
            for piece in _COMMAND_SEPARATORS.split(source):
                words = piece.replace("'", " ").replace('"', " ").replace("\\", "").split()
                if words:
                    yield SimpleCommand(piece.strip(), tuple(Word(word, word) for word in words))

    def _restriction(self, command: SimpleCommand, folders: Sequence[str]) -> CallFinding | None:
        """What a deny or ask rule says of a command, or of a file it names."""
        spellings = [text for words in expand_commands(command.words) for text in _spellings(words)]
        for verdict in (DENY, ASK):
            for rule in self._bash[verdict]:
                if not rule.spec or any(matches_pattern(rule.spec, text) for text in spellings):
                    return CallFinding(verdict, RUN, f"a rule says {verdict}", rule, command.text)
            if rule := self._file_rule(command, verdict, folders):
                return CallFinding(
                    verdict,
                    RUN,
                    f"it names a file of which a rule says {verdict}",
                    rule,
                    command.text,
                )
        return None

    def _file_rule(
        self, command: SimpleCommand, verdict: str, folders: Sequence[str]
    ) -> Rule | None:
        rules = [rule for rule in self._files if rule.verdict == verdict]
        if not rules:
            return None
        targets = [redirect.target for redirect in command.redirects if redirect.target]
        still = is_read_only(strip_wrappers(command.words)) and not any(
            redirect.writes_file for redirect in command.redirects
        )
        rules = [rule for rule in rules if not still or rule.tool in ("read", "glob", "grep")]
        folders = [*folders, *_option_folders(command.words)]
        paths = dict.fromkeys(
            path
            for word in [*command.words[1:], *targets]
            for path in self._possible_paths(word, folders)
        )
        spots = dict.fromkeys(spot for path in paths for spot in self._locations(path, folders))
        return next(
            (rule for rule in rules if matches_file(rule, spots, self._place, match_all=False)),
            None,
        )

    def _locations(self, path: str, folders: Sequence[str]) -> Iterator[str]:
        """Where a file may be that is called so in one of the folders; looked up once a judgement, for commands may repeat themselves."""
        for folder in folders:
            if (path, folder) not in self._location_cache:
                self._location_cache[path, folder] = self._place.path_and_target(path, folder)
            yield from self._location_cache[path, folder]

    def _possible_paths(self, word: Word, folders: Sequence[str]) -> Iterator[str]:
        """Files a word may stand for: itself, what follows a = in it, and what a pattern finds now."""
        if word.value is not None:
            yield word.value
            if "=" in word.value:
                yield word.value.rpartition("=")[2]
            return
        text = _FOLDER_VARIABLES.sub(
            lambda found: self._place.user_home if found[1] else ".",
            re.sub(r"['\"]|\\(?!\n)", "", word.raw),
        )
        if not re.search(r"[$`]", text):
            for one in islice(_expand_braces(text), 64):
                yield one
                for folder in folders if re.search(r"[*?\[]", one) else ():
                    yield from islice(glob.iglob(self._place.absolute(one, folder)), 1000)

    def _judge_command(
        self, command: SimpleCommand, folders: tuple[str, ...], depth: int
    ) -> Iterator[CallFinding]:
        """What may be done without asking, and what may not, of one simple command."""
        yield from (
            finding
            for redirect in command.redirects
            for finding in self._judge_redirect(redirect, command, folders)
        )
        words = command.words
        if (
            program_name(words) in SHELLS
            and len(words) == 3
            and words[1].value == "-c"
            and words[2].value
            and depth
            and not command.variables
        ):
            inner = parse_command(words[2].value)
            yield from (
                CallFinding(
                    UNDECIDED, RUN, f"the command cannot be judged: {why}", command=command.text
                )
                for why in inner.doubts
            )
            for part in inner.commands:
                yield from self._judge_command(part, folders, depth - 1)
            yield from self._folder_given(words, command)
            return
        yield self._judge_program(command, folders)

    def _folder_given(self, words: Sequence[Word], command: SimpleCommand) -> Iterator[CallFinding]:
        if "/" in (words[0].value or "/") and not (words[0].value or "").startswith(
            ("/bin/", "/usr/bin/")
        ):
            yield CallFinding(UNDECIDED, RUN, "no rule allows this program", command=command.text)

    def _judge_program(self, command: SimpleCommand, folders: tuple[str, ...]) -> CallFinding:
        words, text = command.words, command.text
        if trouble := _variable_risk(command):
            return self._match_literal_rule(command) or CallFinding(
                UNDECIDED, RUN, trouble, command=text
            )
        if not words or (words[0].value in _DECLARATIONS and len(words) == 1 and command.variables):
            return CallFinding(ALLOW, READ, "it only sets a variable of its own", command=text)
        inner = strip_wrappers(words)
        free = self._reading or program_name(inner) in FILELESS_PROGRAMS | {"cd"}
        if free and is_read_only(inner) and not (len(folders) > 1 and program_name(inner) == "git"):
            outside = next(
                (word.raw for word in inner[1:] if not self._stays_inside(inner, word, folders)), ""
            )
            if not outside:
                return CallFinding(ALLOW, READ, "it only reads", command=text)
            return self._match_allow_rule(command, inner) or CallFinding(
                UNDECIDED, RUN, f"it reads {outside}, which may be outside the folder", command=text
            )
        return self._match_allow_rule(command, inner) or CallFinding(
            UNDECIDED, RUN, find_risk(inner) or "no rule allows it", command=text
        )

    def _stays_inside(self, words: Sequence[Word], word: Word, folders: tuple[str, ...]) -> bool:
        """Whether a word of a command that reads names nothing outside the workspace."""
        if program_name(words) in FILELESS_PROGRAMS:
            return True
        if word.value is None:
            return word.raw.startswith("<(") or not re.search(r"[$`{~]|^/|\.\.", word.raw)
        names = [word.value, *([word.value.rpartition("=")[2]] if "=" in word.value else [])]
        if word.value.startswith("-") and "/" in word.value:
            names.append(word.value[word.value.index("/") :])
        return all(
            _DEVICE_FILES.fullmatch(name) or self._place.is_inside(name, folders) for name in names
        )

    def _match_literal_rule(self, command: SimpleCommand) -> CallFinding | None:
        """A rule without a wildcard is about the whole text, whatever is in it."""
        rule = next(
            (
                rule
                for rule in self._bash[ALLOW]
                if is_literal(rule.spec) and rule.spec == command.text.strip()
            ),
            None,
        )
        return (
            CallFinding(ALLOW, RUN, "a rule allows exactly this", rule, command.text)
            if rule
            else None
        )

    def _match_allow_rule(
        self, command: SimpleCommand, inner: Sequence[Word]
    ) -> CallFinding | None:
        if found := self._match_literal_rule(command):
            return found
        if find_risk(inner) or not re.fullmatch(r"[\w.+/@-]+", inner[0].value or ""):
            return None
        text = " ".join(word.spelling for word in inner)
        rule = next((rule for rule in self._bash[ALLOW] if matches_pattern(rule.spec, text)), None)
        return CallFinding(ALLOW, RUN, "a rule allows it", rule, command.text) if rule else None

    def _judge_redirect(
        self, redirect: Redirect, command: SimpleCommand, folders: tuple[str, ...]
    ) -> Iterator[CallFinding]:
        target, text = redirect.target, command.text
        if (
            target is None
            or redirect.operator == "<&"
            or (redirect.operator == ">&" and not redirect.writes_file)
        ):
            return
        path = target.value
        if path is None:
            yield CallFinding(
                UNDECIDED, RUN, f"the file {target.raw} is known only when it runs", command=text
            )
        elif _DEVICE_FILES.fullmatch(path):
            return
        elif not redirect.writes_file:
            yield CallFinding(
                *((ALLOW, READ) if self._place.is_inside(path, folders) else (UNDECIDED, RUN)),
                f"it reads {path}",
                command=text,
            )
        elif part := next(
            filter(
                None,
                (
                    find_protected_component(self._place.relative(path, folder))
                    for folder in folders
                ),
            ),
            "",
        ):
            yield CallFinding(
                DENY,
                EDIT,
                f"{part} is protected: it decides what your own programs run",
                command=text,
            )
        elif rule := self._match_edit_rule(path, folders):
            yield CallFinding(ALLOW, EDIT, "a rule allows this file", rule, text)
        elif len(folders) > 1 or not self._place.is_inside(path):
            yield CallFinding(
                UNDECIDED, RUN, f"it writes {path}, which may be outside the folder", command=text
            )
        else:
            yield CallFinding(UNDECIDED, EDIT, f"it writes {path}", command=text)

    def _match_edit_rule(self, path: str, folders: Sequence[str]) -> Rule | None:
        rules = (
            rule for rule in self._files if rule.verdict == ALLOW and rule.tool in ("edit", "write")
        )
        return next(
            (
                rule
                for rule in rules
                if matches_file(
                    rule, [*self._locations(path, folders)], self._place, match_all=True
                )
            ),
            None,
        )


def _working_folders(commands: Sequence[SimpleCommand]) -> tuple[str, ...]:
    """Folders that relative paths may begin at: the workspace, and one for each cd so far."""
    folders = [""]
    for command in commands:
        if program_name(command.words) in ("cd", "pushd", "popd"):
            target = (command.words[-1].value or "") if len(command.words) > 1 else ""
            folders.append(
                target
                if target.startswith("~")
                else os.path.normpath(os.path.join(folders[-1], target))
            )
    return tuple(dict.fromkeys(folders))


def _option_folders(words: Sequence[Word]) -> Iterator[str]:
    """Folders that options tell a program to work in, as of git, env, make, tar."""
    for option, word in pairwise(words):
        if option.value in ("-C", "--chdir", "--directory", "--cwd") and word.value:
            yield word.value


def _expand_braces(text: str) -> Iterator[str]:
    """What braces with commas stand for."""
    braces = re.search(r"\{([^{}]*,[^{}]*)\}", text)
    if braces is None:
        yield text
        return
    for choice in braces[1].split(","):
        yield from _expand_braces(text[: braces.start()] + choice + text[braces.end() :])


def _spellings(words: Sequence[Word]) -> set[str]:
    """A command as rules may spell it: as written, and with its program's bare name."""
    if not words:
        return set()
    whole = " ".join(word.spelling for word in words)
    loose = " ".join(word.raw if word.value is None else word.value for word in words)
    bare = program_name(words)
    rest = whole.partition(" ")[2]
    return {whole, loose, f"{bare} {rest}".strip()} if bare else {whole, loose}


def _variable_risk(command: SimpleCommand) -> str:
    """Why the variables a command sets forbid to allow it by its name."""
    exported = bool(command.words)
    for name in command.variables:
        own = not exported and _PLAIN_VARIABLE.fullmatch(name) and not name.endswith("_proxy")
        if not own and not SAFE_VARIABLES.fullmatch(name):
            return f"it sets {name}, which may change what is run"
    return ""
