"""Allow rules the user approves at the prompt, for the session or kept for a folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from .._core.tools import Tool, ToolCategory
from .path_rules import PathContext, get_call_path
from .policy import RulePolicy
from .rules import CallFinding, Permissions, Rule, Verdict, parse_rule
from .trust import read_kept, write_kept

APPROVED_FILE = "approved.json"
SESSION_ORIGIN = "approved for this session"
FOLDER_ORIGIN = f"approved for this folder, in {APPROVED_FILE}"


class ApprovedRules:
    """The rules the user approved, and the calls they allow.

    As with all allow rules, the session's deny and ask rules come first.
    """

    def __init__(
        self,
        permissions: Permissions,
        *,
        workspace: str,
        user_home: str,
        tools: Mapping[str, Tool],
        tier: Callable[[], str],
    ) -> None:
        self.rules: list[Rule] = []
        self._permissions = permissions
        self._context = PathContext(workspace, user_home)
        self._tools = tools
        self._tier = tier
        self._policy = self._make_policy()

    def add(self, *rules: Rule) -> None:
        self.rules.extend(rule for rule in rules if rule not in self.rules)
        self._policy = self._make_policy(*self.rules)

    def remove(self, rule: Rule) -> None:
        """Remove all rules with this rule's tool and pattern, whatever their origin."""
        text = format_rule(rule)
        self.rules = [each for each in self.rules if format_rule(each) != text]
        self._policy = self._make_policy(*self.rules)

    def allow(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        if tool not in self._tools:
            return any(rule.names(tool) for rule in self.rules)
        findings = self._policy.collect_findings(self._tools[tool], arguments)
        # An approved rule must allow some part: what other rules allow is not decided here.
        return _allows_all(findings) and any(finding.rule in self.rules for finding in findings)

    def suggest(self, tool: str, arguments: Mapping[str, Any]) -> tuple[Rule, ...]:
        """Suggest rules that would allow this call and similar ones; () if no rule can."""
        known = self._tools.get(tool)
        if known is None:
            return (Rule(Verdict.ALLOW, tool, origin=SESSION_ORIGIN, is_approved=True),)
        rules: list[Rule] = []
        for finding in self.list_open_findings(tool, arguments):
            candidates = self._list_candidates(known, arguments, finding)
            part = {**arguments}
            if finding.command:
                part[known.rule_argument] = finding.command
            rule = next((rule for rule in candidates if self._allows(known, part, rule)), None)
            if rule is None:
                return ()
            rules.append(rule)
        # Each part alone is allowed by its rule, but the whole need not be: an earlier part may
        # change what a later one does.
        if not self._allows(known, arguments, *rules):
            return ()
        return tuple(dict.fromkeys(rules))

    def list_open_findings(self, tool: str, arguments: Mapping[str, Any]) -> list[CallFinding]:
        if tool not in self._tools:
            return []
        findings = self._policy.collect_findings(self._tools[tool], arguments)
        return [finding for finding in findings if finding.verdict != Verdict.ALLOW]

    def _allows(self, tool: Tool, arguments: Mapping[str, Any], *rules: Rule) -> bool:
        policy = self._make_policy(*self.rules, *rules)
        return _allows_all(policy.collect_findings(tool, arguments))

    def _make_policy(self, *rules: Rule) -> RulePolicy:
        return RulePolicy(
            replace(self._permissions, rules=(*self._permissions.rules, *rules)),
            workspace=self._context.workspace,
            user_home=self._context.user_home,
            tools=self._tools,
            tier=self._tier,
        )

    def _list_candidates(
        self, tool: Tool, arguments: Mapping[str, Any], finding: CallFinding
    ) -> Iterator[Rule]:
        """Yield rules that may cover one finding, the most general first."""
        base = self._context.workspace
        if tool.category is ToolCategory.RUN:
            patterns = _list_command_patterns(finding.command)
        elif tool.path_argument:
            path = get_call_path(tool, arguments)
            is_inside = self._context.is_inside(path)
            patterns = ["/**"] if is_inside else [f"/{self._context.make_absolute(path)}"]
        else:
            patterns = [""]
        for pattern in patterns:
            yield Rule(Verdict.ALLOW, tool.name, pattern, SESSION_ORIGIN, base, True)


def _allows_all(findings: list[CallFinding]) -> bool:
    return all(finding.verdict == Verdict.ALLOW for finding in findings)


def _list_command_patterns(command: str) -> Iterator[str]:
    """Yield patterns for a simple command: first with similar arguments, then exactly this one."""
    from .program_risk import find_approved_prefix
    from .program_wrappers import get_program_name, strip_wrappers
    from .shell_parser import parse_command

    script = parse_command(command)
    words = strip_wrappers(script.commands[0].words) if len(script.commands) == 1 else ()
    if script.problems or not get_program_name(words):
        return
    if prefix := find_approved_prefix(words):
        yield f"{prefix}:*"
    # A rule has no way to escape a star: the pattern would match other commands.
    if "*" not in command:
        yield command


def load_approved(home: str, folder: str) -> tuple[Rule, ...]:
    """Load the rules the user keeps for a folder or one of its parents.

    Raises UsageError if the file in `home`, mudroom's state folder, cannot be read.
    """
    path = Path(home, APPROVED_FILE)
    kept = _read(path)
    real = Path(os.path.realpath(folder))
    return tuple(
        replace(
            parse_rule(text, Verdict.ALLOW, origin=FOLDER_ORIGIN, base=str(place)),
            is_approved=True,
        )
        for place in (real, *real.parents)
        for text in kept.get(str(place), [])
    )


def keep_approved(home: str, folder: str, rules: tuple[Rule, ...]) -> str:
    """Keep rules for a folder and everything below it; return the path of the file."""
    path = Path(home, APPROVED_FILE)
    kept = _read(path)
    texts = kept.setdefault(os.path.realpath(folder), [])
    texts.extend(text for text in map(format_rule, rules) if text not in texts)
    write_kept(path, kept)
    return str(path)


def forget_approved(home: str, rule: Rule) -> None:
    path = Path(home, APPROVED_FILE)
    kept = _read(path)
    texts = [text for text in kept.get(rule.base, []) if text != format_rule(rule)]
    kept = {**kept, rule.base: texts}
    write_kept(path, {place: texts for place, texts in kept.items() if texts})


def format_rule(rule: Rule) -> str:
    return f"{rule.tool}({rule.pattern})" if rule.pattern else rule.tool


def _read(path: Path) -> dict[str, list[str]]:
    return read_kept(path, dict[str, list[str]], "the approved rules")
