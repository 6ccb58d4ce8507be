"""Shell commands judged: every simple command, every redirect, and whatever the parser is not sure of."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

from .._platform.protected_names import protected_part
from .path_rules import Place, matches
from .program_table import (
    SAFE_VARIABLES,
    SHELLS,
    SPEAKERS,
    meanings,
    program,
    reads_only,
    risk,
    stripped,
    texts,
)
from .rules import ALLOW, ASK, DENY, EDIT, OPEN, READ, RUN, Finding, Rule, exact, fits
from .shell_parser import parse
from .shell_words import Command, Redirect, Script, Word

DEPTH = 4
"""Levels of shells in shells that are looked into."""
FOLDERS = 16
"""Folders that a command may go to before it is doubted."""
_SINKS = re.compile(r"/dev/(null|stdout|stderr|fd/\d+|tty)")
_PLAIN_VARIABLE = re.compile(r"[a-z_][a-z0-9_]*")
_DECLARATIONS = {"export", "local", "readonly", "declare", "typeset"}
_PLACES = re.compile(r"\$(?:(HOME\b|\{HOME\})|PWD\b|\{PWD\})|^~\+(?=/|$)")
"""Spellings of the home folder, and of the one a command is in."""
_ROUGH = re.compile(r"[;&|\n(){}`]|\$\(")


class Commands:
    """Judges commands by the rules about bash, and their files by the rules about files.

    Arguments:
        rules: all of the session. place: where relative paths begin.
        reading: whether what only reads the workspace needs no rule.
    """

    def __init__(self, rules: Sequence[Rule], place: Place, *, reading: bool = True) -> None:
        self._place, self._reading = place, reading
        self._known: dict[tuple[str, str], tuple[str, ...]] = {}
        self._bash = {
            verdict: [rule for rule in rules if rule.verdict == verdict and rule.names("bash")]
            for verdict in (DENY, ASK, ALLOW)
        }
        self._files = [
            rule
            for rule in rules
            if rule.spec and rule.tool in ("read", "edit", "write", "glob", "grep")
        ]
        self.watched = any(self._bash[verdict] for verdict in (DENY, ASK)) or any(
            rule.verdict != ALLOW for rule in self._files
        )
        """Whether a rule forbids or asks for any command, so that one that cannot be read could be it."""

    def judge(self, command: str) -> list[Finding]:
        """What is known of each part, in order; never empty."""
        self._known = {}
        script = parse(command)
        everything = list(self._everything(script, command))
        within = _folders(everything)
        barred = [found for part in everything if (found := self._barred(part, within[:FOLDERS]))]
        if any(found.verdict == DENY for found in barred):
            return barred
        if bare := next((rule for rule in self._bash[ALLOW] if not rule.spec), None):
            return barred or [Finding(ALLOW, RUN, "a rule allows every command", bare, command)]
        verdict = ASK if self.watched else OPEN
        far = ["it goes to too many folders"] if len(within) > FOLDERS else []
        doubts = [
            Finding(verdict, RUN, f"the command cannot be judged: {why}", part=command)
            for why in (*script.doubts, *far)
        ]
        folders = _folders(script.commands)[:FOLDERS]
        judged = [
            finding for part in script.commands for finding in self._part(part, folders, DEPTH)
        ]
        return [*barred, *doubts, *judged] or [
            Finding(ALLOW, READ, "it does nothing", part=command)
        ]

    def _everything(self, script: Script, source: str, depth: int = DEPTH) -> Iterator[Command]:
        """All commands, those inside the words of others too; of a text that was not understood, whatever looks like one."""
        for command in script.commands:
            yield command
            for text in texts(command) if depth else ():
                yield from self._everything(parse(text), text, depth - 1)
        if script.doubts:
            for piece in _ROUGH.split(source):
                words = piece.replace("'", " ").replace('"', " ").replace("\\", "").split()
                if words:
                    yield Command(piece.strip(), tuple(Word(word, word) for word in words))

    def _barred(self, command: Command, folders: Sequence[str]) -> Finding | None:
        """What a deny or ask rule says of a command, or of a file it names."""
        spellings = [text for words in meanings(command.words) for text in _spellings(words)]
        for verdict in (DENY, ASK):
            for rule in self._bash[verdict]:
                if not rule.spec or any(fits(rule.spec, text) for text in spellings):
                    return Finding(verdict, RUN, f"a rule says {verdict}", rule, command.text)
            if rule := self._file_rule(command, verdict, folders):
                return Finding(
                    verdict,
                    RUN,
                    f"it names a file of which a rule says {verdict}",
                    rule,
                    command.text,
                )
        return None

    def _file_rule(self, command: Command, verdict: str, folders: Sequence[str]) -> Rule | None:
        rules = [rule for rule in self._files if rule.verdict == verdict]
        if not rules:
            return None
        targets = [redirect.target for redirect in command.redirects if redirect.target]
        still = reads_only(stripped(command.words)) and not any(
            redirect.writes for redirect in command.redirects
        )
        rules = [rule for rule in rules if not still or rule.tool in ("read", "glob", "grep")]
        folders = [*folders, *_given(command.words)]
        paths = dict.fromkeys(
            path for word in [*command.words[1:], *targets] for path in self._meant(word, folders)
        )
        spots = dict.fromkeys(spot for path in paths for spot in self._spots(path, folders))
        return next(
            (rule for rule in rules if matches(rule, spots, self._place, every=False)), None
        )

    def _spots(self, path: str, folders: Sequence[str]) -> Iterator[str]:
        """Where a file may be that is called so in one of the folders; looked up once a judgement, for commands may repeat themselves."""
        for folder in folders:
            if (path, folder) not in self._known:
                self._known[path, folder] = self._place.both(path, folder)
            yield from self._known[path, folder]

    def _meant(self, word: Word, folders: Sequence[str]) -> Iterator[str]:
        """Files a word may stand for: itself, what follows a = in it, and what a pattern finds now."""
        if word.value is not None:
            yield word.value
            if "=" in word.value:
                yield word.value.rpartition("=")[2]
            return
        text = _PLACES.sub(
            lambda found: self._place.home if found[1] else ".",
            re.sub(r"['\"]|\\(?!\n)", "", word.raw),
        )
        if not re.search(r"[$`]", text):
            for one in islice(_alternatives(text), 64):
                yield one
                for folder in folders if re.search(r"[*?\[]", one) else ():
                    yield from islice(glob.iglob(self._place.absolute(one, folder)), 1000)

    def _part(self, command: Command, folders: tuple[str, ...], depth: int) -> Iterator[Finding]:
        """What may be done without asking, and what may not, of one simple command."""
        yield from (
            finding
            for redirect in command.redirects
            for finding in self._redirect(redirect, command, folders)
        )
        words = command.words
        if (
            program(words) in SHELLS
            and len(words) == 3
            and words[1].value == "-c"
            and words[2].value
            and depth
            and not command.assigned
        ):
            inner = parse(words[2].value)
            yield from (
                Finding(OPEN, RUN, f"the command cannot be judged: {why}", part=command.text)
                for why in inner.doubts
            )
            for part in inner.commands:
                yield from self._part(part, folders, depth - 1)
            yield from self._folder_given(words, command)
            return
        yield self._allowed(command, folders)

    def _folder_given(self, words: Sequence[Word], command: Command) -> Iterator[Finding]:
        if "/" in (words[0].value or "/") and not (words[0].value or "").startswith(
            ("/bin/", "/usr/bin/")
        ):
            yield Finding(OPEN, RUN, "no rule allows this program", part=command.text)

    def _allowed(self, command: Command, folders: tuple[str, ...]) -> Finding:
        words, text = command.words, command.text
        if trouble := _variables(command):
            return self._exactly(command) or Finding(OPEN, RUN, trouble, part=text)
        if not words or (words[0].value in _DECLARATIONS and len(words) == 1 and command.assigned):
            return Finding(ALLOW, READ, "it only sets a variable of its own", part=text)
        inner = stripped(words)
        free = self._reading or program(inner) in SPEAKERS | {"cd"}
        if free and reads_only(inner) and not (len(folders) > 1 and program(inner) == "git"):
            outside = next(
                (word.raw for word in inner[1:] if not self._within(inner, word, folders)), ""
            )
            if not outside:
                return Finding(ALLOW, READ, "it only reads", part=text)
            return self._ruled(command, inner) or Finding(
                OPEN, RUN, f"it reads {outside}, which may be outside the folder", part=text
            )
        return self._ruled(command, inner) or Finding(
            OPEN, RUN, risk(inner) or "no rule allows it", part=text
        )

    def _within(self, words: Sequence[Word], word: Word, folders: tuple[str, ...]) -> bool:
        """Whether a word of a command that reads names nothing outside the workspace."""
        if program(words) in SPEAKERS:
            return True
        if word.value is None:
            return word.raw.startswith("<(") or not re.search(r"[$`{~]|^/|\.\.", word.raw)
        names = [word.value, *([word.value.rpartition("=")[2]] if "=" in word.value else [])]
        if word.value.startswith("-") and "/" in word.value:
            names.append(word.value[word.value.index("/") :])
        return all(_SINKS.fullmatch(name) or self._place.inside(name, folders) for name in names)

    def _exactly(self, command: Command) -> Finding | None:
        """A rule without a wildcard is about the whole text, whatever is in it."""
        rule = next(
            (
                rule
                for rule in self._bash[ALLOW]
                if exact(rule.spec) and rule.spec == command.text.strip()
            ),
            None,
        )
        return (
            Finding(ALLOW, RUN, "a rule allows exactly this", rule, command.text) if rule else None
        )

    def _ruled(self, command: Command, inner: Sequence[Word]) -> Finding | None:
        if found := self._exactly(command):
            return found
        if risk(inner) or not re.fullmatch(r"[\w.+/@-]+", inner[0].value or ""):
            return None
        text = " ".join(word.spelled for word in inner)
        rule = next((rule for rule in self._bash[ALLOW] if fits(rule.spec, text)), None)
        return Finding(ALLOW, RUN, "a rule allows it", rule, command.text) if rule else None

    def _redirect(
        self, redirect: Redirect, command: Command, folders: tuple[str, ...]
    ) -> Iterator[Finding]:
        target, text = redirect.target, command.text
        if (
            target is None
            or redirect.operator == "<&"
            or (redirect.operator == ">&" and not redirect.writes)
        ):
            return
        path = target.value
        if path is None:
            yield Finding(OPEN, RUN, f"the file {target.raw} is known only when it runs", part=text)
        elif _SINKS.fullmatch(path):
            return
        elif not redirect.writes:
            yield Finding(
                *((ALLOW, READ) if self._place.inside(path, folders) else (OPEN, RUN)),
                f"it reads {path}",
                part=text,
            )
        elif part := next(
            filter(
                None, (protected_part(self._place.relative(path, folder)) for folder in folders)
            ),
            "",
        ):
            yield Finding(
                DENY, EDIT, f"{part} is protected: it decides what your own programs run", part=text
            )
        elif rule := self._editable(path, folders):
            yield Finding(ALLOW, EDIT, "a rule allows this file", rule, text)
        elif len(folders) > 1 or not self._place.inside(path):
            yield Finding(
                OPEN, RUN, f"it writes {path}, which may be outside the folder", part=text
            )
        else:
            yield Finding(OPEN, EDIT, f"it writes {path}", part=text)

    def _editable(self, path: str, folders: Sequence[str]) -> Rule | None:
        rules = (
            rule for rule in self._files if rule.verdict == ALLOW and rule.tool in ("edit", "write")
        )
        return next(
            (
                rule
                for rule in rules
                if matches(rule, [*self._spots(path, folders)], self._place, every=True)
            ),
            None,
        )


def _folders(commands: Sequence[Command]) -> tuple[str, ...]:
    """Folders that relative paths may begin at: the workspace, and one for each cd so far."""
    folders = [""]
    for command in commands:
        if program(command.words) in ("cd", "pushd", "popd"):
            target = (command.words[-1].value or "") if len(command.words) > 1 else ""
            folders.append(
                target
                if target.startswith("~")
                else os.path.normpath(os.path.join(folders[-1], target))
            )
    return tuple(dict.fromkeys(folders))


def _given(words: Sequence[Word]) -> Iterator[str]:
    """Folders that options tell a program to work in, as of git, env, make, tar."""
    for option, word in pairwise(words):
        if option.value in ("-C", "--chdir", "--directory", "--cwd") and word.value:
            yield word.value


def _alternatives(text: str) -> Iterator[str]:
    """What braces with commas stand for."""
    braces = re.search(r"\{([^{}]*,[^{}]*)\}", text)
    if braces is None:
        yield text
        return
    for choice in braces[1].split(","):
        yield from _alternatives(text[: braces.start()] + choice + text[braces.end() :])


def _spellings(words: Sequence[Word]) -> set[str]:
    """A command as rules may spell it: as written, and with its program's bare name."""
    if not words:
        return set()
    whole = " ".join(word.spelled for word in words)
    loose = " ".join(word.raw if word.value is None else word.value for word in words)
    bare = program(words)
    rest = whole.partition(" ")[2]
    return {whole, loose, f"{bare} {rest}".strip()} if bare else {whole, loose}


def _variables(command: Command) -> str:
    """Why the variables a command sets forbid to allow it by its name."""
    exported = bool(command.words)
    for name in command.assigned:
        own = not exported and _PLAIN_VARIABLE.fullmatch(name) and not name.endswith("_proxy")
        if not own and not SAFE_VARIABLES.fullmatch(name):
            return f"it sets {name}, which may change what is run"
    return ""
