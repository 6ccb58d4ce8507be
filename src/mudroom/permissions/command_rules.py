"""Deny and ask rules about commands, and about the files that their words name."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from .._core.tools import Tool, ToolCategory
from .match_call import CallMatcher
from .path_rules import could_cover, matches_file
from .program_risk import is_read_only
from .program_wrappers import expand_commands, get_program_name, strip_wrappers
from .rules import CallFinding, CallKind, Rule, Verdict, matches_pattern
from .shell_paths import find_option_folders, has_wildcard
from .shell_words import SimpleCommand, Word
from .shell_writes import MAX_ENTRIES, WriteJudge


class CommandRules:
    """Rules about commands and files, and those among them that restrict a command.

    Arguments:
        rules: all rules of the session. tool: the tool that runs commands.
    """

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
        """True if a rule may be about a command that cannot be parsed."""
        return bool(self.command_rules[Verdict.DENY] or self.command_rules[Verdict.ASK]) or any(
            rule.verdict != Verdict.ALLOW for rule in self.file_rules
        )

    def find(
        self, command: SimpleCommand, folders: Sequence[str], writes: WriteJudge
    ) -> CallFinding | None:
        """Return the finding of a deny or ask rule about a command or a file it names, or None."""
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
        """Return whether a file rule is one for `read`, not for `edit`."""
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
        # Quotes keep patterns from bash, but git expands those too.
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
    """Return the spellings of a command that a rule may use.

    These are the command as written, without quotes, and with the bare name of its program.
    """
    if not words:
        return set()
    spelling = " ".join(word.spelling for word in words)
    unquoted = " ".join(word.raw if word.value is None else word.value for word in words)
    spellings = {spelling, unquoted}
    if name := get_program_name(words):
        arguments = spelling.partition(" ")[2]
        spellings.add(f"{name} {arguments}".strip())
    return spellings
