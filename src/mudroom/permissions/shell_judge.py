"""Judges shell commands: a verdict for each simple command, redirect and problem."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from .._core.tools import Tool, ToolCategory
from .._platform.protected_names import find_protected_component
from .path_rules import CallMatcher, could_cover, matches_file
from .program_risk import (
    find_approved_prefix,
    find_risk,
    is_read_only,
    is_safe_variable,
    obeys_folder,
)
from .program_table import FILELESS_PROGRAMS, SHELLS
from .program_wrappers import expand_commands, extract_texts, get_program_name, strip_wrappers
from .rules import CallFinding, CallKind, Rule, Verdict, is_literal, matches_pattern
from .shell_parser import parse_command
from .shell_words import Redirect, Script, SimpleCommand, Word
from .shell_writes import (
    MAX_ENTRIES,
    CommandPaths,
    WriteJudge,
    find_option_folders,
    find_unknown_folder,
    find_working_folders,
    has_wildcard,
)

# Levels of nested shells to judge; anything deeper counts as unknown.
MAX_SHELL_DEPTH = 4
# Working folders to consider; each path is resolved relative to all of them.
MAX_FOLDERS = 16
_DEVICE_FILES = re.compile(r"/dev/(null|stdout|stderr|fd/\d+|tty)")
_DECLARATIONS = {"export", "local", "readonly", "declare", "typeset"}
_COMMAND_SEPARATORS = re.compile(r"[;&|\n(){}`]|\$\(")


class CommandJudge:
    """Judges commands by the rules about bash, and their files by the rules about files.

    `allow_reading` allows commands that only read the workspace even without a rule. `is_sandboxed`
    tells, when needed, whether a sandbox confines what a command starts.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        tool: Tool,
        matcher: CallMatcher,
        *,
        allow_reading: bool = True,
        is_sandboxed: Callable[[], bool] = lambda: False,
    ) -> None:
        self._context = matcher.context
        self._paths = CommandPaths(self._context)
        self._writes = WriteJudge(self._context, self._paths)
        self._unknown_folder = ""
        self._allow_reading = allow_reading
        self._is_sandboxed = is_sandboxed
        self._rules = CommandRules(rules, tool, matcher)

    def judge(self, command: str) -> list[CallFinding]:
        """Judge all parts of a command line in order; returns at least one finding."""
        self._paths = CommandPaths(self._context)
        self._writes = WriteJudge(self._context, self._paths)
        script = parse_command(command)
        all_commands = list(self._list_commands(script, command, MAX_SHELL_DEPTH))
        all_folders = find_working_folders(all_commands)
        self._unknown_folder = find_unknown_folder(all_commands)
        # Deny and ask rules look at everything that might run, even inside quotes; allow rules
        # below only at what certainly runs.
        restrictions = [
            finding
            for part in all_commands
            if (finding := self._rules.find(part, all_folders[:MAX_FOLDERS], self._writes))
        ]
        if any(finding.verdict == Verdict.DENY for finding in restrictions):
            return restrictions
        folders = find_working_folders(script.commands)[:MAX_FOLDERS]
        parts = [
            finding
            for part in script.commands
            for finding in self._judge_command(part, folders, MAX_SHELL_DEPTH)
        ]
        if rule := next(
            (
                rule
                for rule in self._rules.command_rules[Verdict.ALLOW]
                if not rule.pattern and not rule.is_approved
            ),
            None,
        ):
            denials = [finding for finding in parts if finding.verdict == Verdict.DENY]
            why = "a rule allows every command"
            finding = CallFinding(Verdict.ALLOW, CallKind.RUN, why, rule, command)
            if script.is_whole or denials:
                return [*restrictions, *denials] or [finding]
            # What was not parsed may write protected files, which no rule allows.
        findings = [*restrictions, *self._judge_problems(script, command, all_folders), *parts]
        nothing = CallFinding(Verdict.ALLOW, CallKind.READ, "it does nothing", command=command)
        return findings or [nothing]

    def _judge_problems(
        self, script: Script, command: str, folders: Sequence[str]
    ) -> Iterator[CallFinding]:
        verdict = Verdict.ASK if self._rules.can_restrict else Verdict.UNDECIDED
        problems = [*script.problems]
        if len(folders) > MAX_FOLDERS:
            problems.append("it changes to too many folders")
        for problem in problems:
            why = f"the command cannot be judged: {problem}"
            yield CallFinding(verdict, CallKind.RUN, why, command=command)

    def _list_commands(self, script: Script, source: str, depth: int) -> Iterator[SimpleCommand]:
        """Yield all commands, including those inside the words of other commands.

        If the text was not understood, yield every piece of it that looks like a command.
        """
        for command in script.commands:
            yield command
            for text in extract_texts(command) if depth else ():
                yield from self._list_commands(parse_command(text), text, depth - 1)
        if not script.problems:
            return
        for piece in _COMMAND_SEPARATORS.split(source):
            words = piece.replace("'", " ").replace('"', " ").replace("\\", "").split()
            if words:
                yield SimpleCommand(piece.strip(), tuple(Word(word, word) for word in words))

    def _judge_command(
        self, command: SimpleCommand, folders: tuple[str, ...], depth: int
    ) -> Iterator[CallFinding]:
        for redirect in command.redirects:
            if finding := self._judge_redirect(redirect, command, folders):
                yield finding
        if not depth or command.variables or not _is_shell_call(command.words):
            yield self._judge_program(command, folders)
            return
        inner = parse_command(command.words[2].value or "")
        for problem in inner.problems:
            yield _make_undecided(f"the command cannot be judged: {problem}", command)
        for part in inner.commands:
            yield from self._judge_command(part, folders, depth - 1)
        shell = command.words[0].value or ""
        if "/" in shell and not shell.startswith(("/bin/", "/usr/bin/")):
            yield _make_undecided("no rule allows this program", command)

    def _judge_program(self, command: SimpleCommand, folders: tuple[str, ...]) -> CallFinding:
        words = command.words
        if finding := self._deny_write(command, folders):
            return finding
        if risk := _find_variable_risk(command):
            return self._match_literal_rule(command, folders) or _make_undecided(risk, command)
        is_declaration = len(words) == 1 and words[0].value in _DECLARATIONS
        if not words or (is_declaration and command.variables):
            return _make_allowed_read("it only sets shell variables", command)
        inner = strip_wrappers(words)
        name = get_program_name(inner)
        may_read = self._allow_reading or name in FILELESS_PROGRAMS | {"cd"}
        # Which repository git reads, and so what it may run, depends on its working folder.
        git_elsewhere = len(folders) > 1 and name == "git"
        if not may_read or git_elsewhere or not is_read_only(inner):
            why = find_risk(inner) or self._find_doubt(inner, folders) or "no rule allows it"
            return self._match_allow_rule(command, inner, folders) or _make_undecided(why, command)
        why = ""
        if obeys_folder(inner) and not self._is_sandboxed():
            why = (
                f"without a sandbox, {name} may run programs that files of this folder name; "
                f"a rule such as Bash({command.text.strip()}) allows it"
            )
        for word in inner[1:]:
            if not self._stays_inside(inner, word, folders):
                why = f"it reads {word.raw}, which may be outside the workspace"
        if why:
            return self._match_allow_rule(command, inner, folders) or _make_undecided(why, command)
        return _make_allowed_read("it only reads", command)

    def _deny_write(self, command: SimpleCommand, folders: tuple[str, ...]) -> CallFinding | None:
        """Deny a command that changes a protected file, or runs a command that does."""
        for words in expand_commands(command.words):
            places = [*folders, *find_option_folders(words)]
            if name := self._writes.find_protected(words, places):
                return _deny_protected(name, command)
        return None

    def _find_doubt(self, words: Sequence[Word], folders: Sequence[str]) -> str:
        """Explain why no rule with a wildcard can cover the files a command changes."""
        places = [*folders, *find_option_folders(words)]
        if doubt := self._writes.find_doubt(words, places):
            return doubt
        if self._unknown_folder and not is_read_only(words):
            return f"{self._unknown_folder} is known only when it runs"
        return ""

    def _stays_inside(self, words: Sequence[Word], word: Word, folders: tuple[str, ...]) -> bool:
        if get_program_name(words) in FILELESS_PROGRAMS:
            return True
        if word.value is None:
            return word.raw.startswith("<(") or not re.search(r"[$`{~]|^/|\.\.", word.raw)
        paths = [word.value]
        if "=" in word.value:
            paths.append(word.value.rpartition("=")[2])
        if word.value.startswith("-") and "/" in word.value:
            paths.append(word.value[word.value.index("/") :])
        return all(
            _DEVICE_FILES.fullmatch(path) or self._context.is_inside(path, folders)
            for path in paths
        )

    def _match_literal_rule(
        self, command: SimpleCommand, folders: tuple[str, ...]
    ) -> CallFinding | None:
        for rule in self._rules.command_rules[Verdict.ALLOW]:
            is_same = is_literal(rule.pattern) and rule.pattern == command.text.strip()
            if is_same and not (rule.is_approved and _differs_by_folder(command.words, folders)):
                why = "a rule allows exactly this"
                return CallFinding(Verdict.ALLOW, CallKind.RUN, why, rule, command.text)
        return None

    def _match_allow_rule(
        self, command: SimpleCommand, inner: Sequence[Word], folders: tuple[str, ...]
    ) -> CallFinding | None:
        """Match a command, without wrappers like `timeout 5`, with the allow rules."""
        if finding := self._match_literal_rule(command, folders):
            return finding
        if find_risk(inner) or not re.fullmatch(r"[\w.+/@-]+", inner[0].value or ""):
            return None
        text = " ".join(word.spelling for word in inner)
        doubt = self._find_doubt(inner, folders)
        for rule in self._rules.command_rules[Verdict.ALLOW]:
            is_covered = is_literal(rule.pattern) or not doubt
            if rule.is_approved:
                is_covered = is_covered and self._is_approved(rule, inner, folders)
            if is_covered and matches_pattern(rule.pattern, text):
                why = "a rule allows it"
                return CallFinding(Verdict.ALLOW, CallKind.RUN, why, rule, command.text)
        return None

    def _is_approved(self, rule: Rule, words: Sequence[Word], folders: tuple[str, ...]) -> bool:
        if _differs_by_folder(words, folders):
            return False
        return is_literal(rule.pattern) or (
            rule.pattern == f"{find_approved_prefix(words)}:*"
            and all(self._stays_inside(words, word, folders) for word in words[1:])
        )

    def _judge_redirect(
        self, redirect: Redirect, command: SimpleCommand, folders: tuple[str, ...]
    ) -> CallFinding | None:
        target = redirect.target
        copies_descriptor = redirect.operator == "<&" or (
            redirect.operator == ">&" and not redirect.writes_file
        )
        if target is None or copies_descriptor:
            return None
        if target.value is None:
            return _make_undecided(f"the file {target.raw} is known only when it runs", command)
        path = target.value
        if _DEVICE_FILES.fullmatch(path):
            return None
        if not redirect.writes_file:
            if self._context.is_inside(path, folders):
                return _make_allowed_read(f"it reads {path}", command)
            return _make_undecided(f"it reads {path}", command)
        return self._judge_write(path, command, folders)

    def _judge_write(
        self, path: str, command: SimpleCommand, folders: tuple[str, ...]
    ) -> CallFinding:
        for folder in folders:
            if name := find_protected_component(self._context.make_relative(path, folder)):
                return _deny_protected(name, command)
        locations = [*self._paths.list_locations(path, folders)]
        for rule in self._rules.file_rules:
            if rule.verdict != Verdict.ALLOW or self._rules.is_about_reading(rule):
                continue
            if matches_file(rule, locations, self._context, match_all=True):
                why = "a rule allows this file"
                return CallFinding(Verdict.ALLOW, CallKind.EDIT, why, rule, command.text)
        if len(folders) > 1 or not self._context.is_inside(path):
            return _make_undecided(f"it writes {path}, which may be outside the workspace", command)
        return CallFinding(
            Verdict.UNDECIDED, CallKind.EDIT, f"it writes {path}", command=command.text
        )


def _differs_by_folder(words: Sequence[Word], folders: tuple[str, ...]) -> bool:
    """Return whether the program's name may mean different files, depending on the folder."""
    program = words[0].value or "" if words else ""
    return "/" in program and not program.startswith("/") and len(folders) > 1


def _make_undecided(why: str, command: SimpleCommand) -> CallFinding:
    return CallFinding(Verdict.UNDECIDED, CallKind.RUN, why, command=command.text)


def _deny_protected(name: str, command: SimpleCommand) -> CallFinding:
    why = f"{name} is protected: it decides what your own programs run"
    return CallFinding(Verdict.DENY, CallKind.EDIT, why, command=command.text)


def _make_allowed_read(why: str, command: SimpleCommand) -> CallFinding:
    return CallFinding(Verdict.ALLOW, CallKind.READ, why, command=command.text)


def _is_shell_call(words: Sequence[Word]) -> bool:
    if get_program_name(words) not in SHELLS or len(words) != 3:
        return False
    return words[1].value == "-c" and bool(words[2].value)


def _find_variable_risk(command: SimpleCommand) -> str:
    """Explain why a command that sets these variables cannot be allowed by name; "" if it can."""
    for name in command.variables:
        if not is_safe_variable(name, exported=bool(command.words)):
            return f"it sets {name}, which may change what is run"
    return ""


class CommandRules:
    def __init__(self, rules: Sequence[Rule], tool: Tool, matcher: CallMatcher) -> None:
        self._matcher = matcher
        self._context = matcher.context
        self.command_rules = {
            verdict: [rule for rule in rules if rule.verdict == verdict and rule.names(tool.name)]
            for verdict in (Verdict.DENY, Verdict.ASK, Verdict.ALLOW)
        }
        self.file_rules = [
            rule for rule in rules if rule.pattern and matcher.get_rule_access(rule) is not None
        ]

    @property
    def can_restrict(self) -> bool:
        """True if some rule might be about a command that cannot be parsed."""
        return bool(self.command_rules[Verdict.DENY] or self.command_rules[Verdict.ASK]) or any(
            rule.verdict != Verdict.ALLOW for rule in self.file_rules
        )

    def find(
        self, command: SimpleCommand, folders: Sequence[str], writes: WriteJudge
    ) -> CallFinding | None:
        spellings = [
            text for words in expand_commands(command.words) for text in _list_spellings(words)
        ]
        for verdict in (Verdict.DENY, Verdict.ASK):
            for rule in self.command_rules[verdict]:
                if not rule.pattern or any(
                    matches_pattern(rule.pattern, text) for text in spellings
                ):
                    why = f"a rule says {verdict}"
                    return CallFinding(verdict, CallKind.RUN, why, rule, command.text)
            if rule := self._find_file_rule(command, verdict, folders, writes):
                why = f"a rule says {verdict} for a file it names"
                return CallFinding(verdict, CallKind.RUN, why, rule, command.text)
        return None

    def is_about_reading(self, rule: Rule) -> bool:
        return self._matcher.get_rule_access(rule) is ToolCategory.READ

    def _find_file_rule(
        self,
        command: SimpleCommand,
        verdict: Verdict,
        folders: Sequence[str],
        writes: WriteJudge,
    ) -> Rule | None:
        rules = [rule for rule in self.file_rules if rule.verdict == verdict]
        if not rules:
            return None
        writes_file = any(redirect.writes_file for redirect in command.redirects)
        inner = strip_wrappers(command.words)
        if not writes_file and is_read_only(inner):
            rules = [rule for rule in rules if self.is_about_reading(rule)]
        folders = [*folders, *find_option_folders(command.words)]
        targets = [redirect.target for redirect in command.redirects if redirect.target]
        words = [*command.words[1:], *targets]
        locations = self._list_locations(words, folders, writes)
        if not is_read_only(inner):
            changed = dict.fromkeys(islice(writes.list_changed(inner, folders), MAX_ENTRIES))
            for path in changed:
                locations |= dict.fromkeys(writes.paths.list_locations(path, folders))
        # Quotes hide patterns from bash, but git expands them itself.
        is_git = get_program_name(inner) == "git"
        expanded = [word for word in words if word.value is None or is_git]
        patterns = [*filter(has_wildcard, self._list_locations(expanded, folders, writes))]
        return next(
            (
                rule
                for rule in rules
                if matches_file(rule, locations, self._context, match_all=False)
                or any(could_cover(rule, path, self._context) for path in patterns)
            ),
            None,
        )

    def _list_locations(
        self, words: Sequence[Word], folders: Sequence[str], writes: WriteJudge
    ) -> dict[str, None]:
        return dict.fromkeys(
            location
            for word in words
            for path in writes.paths.list_possible_paths(word, folders)
            for location in writes.paths.list_locations(path, folders)
        )


def _list_spellings(words: Sequence[Word]) -> set[str]:
    """List what a rule may say: as written, unquoted, and with the program's bare name."""
    if not words:
        return set()
    spelling = " ".join(word.spelling for word in words)
    unquoted = " ".join(word.raw if word.value is None else word.value for word in words)
    spellings = {spelling, unquoted}
    if name := get_program_name(words):
        arguments = spelling.partition(" ")[2]
        spellings.add(f"{name} {arguments}".strip())
    return spellings
