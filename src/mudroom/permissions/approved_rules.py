"""Allow rules that the user approves at the prompt: for the session, or kept for a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from .._core.tools import Tool, ToolCategory
from .._platform.lazy_pattern import compile_later
from .._platform.private_files import replace_private_file
from .._platform.regular_files import is_missing, read_regular_file
from ..errors import UsageError
from .match_call import get_call_path
from .path_rules import PathContext
from .policy import RulePolicy
from .program_table import (
    CAUTIOUS_PROGRAMS,
    INTERPRETERS,
    READING_PROGRAMS,
    RUNNERS,
    RUNNING_MODULES,
    RUNNING_SUBCOMMANDS,
    SCRIPT_RUNNERS,
    SUBCOMMAND_PROGRAMS,
)
from .rules import CallFinding, Permissions, Rule, Verdict, parse_rule

_PLAIN_WORD = compile_later(r"\w[\w:.-]*")
APPROVED_FILE = "approved.json"
SESSION_ORIGIN = "approved for this session"
FOLDER_ORIGIN = f"approved for this folder, in {APPROVED_FILE}"


class ApprovedRules:
    """Rules that the user approved, and the calls that they allow.

    Deny rules and ask rules of the session come first, as for all allow rules.

    Arguments:
        permissions: those of the session.
        tools: the built-in tools by name.
    """

    def __init__(
        self,
        permissions: Permissions,
        *,
        workspace: str,
        user_home: str,
        tools: Mapping[str, Tool],
    ) -> None:
        self.rules: list[Rule] = []
        self._permissions = permissions
        self._context = PathContext(workspace, user_home)
        self._tools = tools
        self._policy = self._make_policy()

    def add(self, *rules: Rule) -> None:
        """Approve rules."""
        self.rules.extend(rule for rule in rules if rule not in self.rules)
        self._policy = self._make_policy(*self.rules)

    def remove(self, rule: Rule) -> None:
        """Remove the rules with the tool and the pattern of a rule."""
        text = format_rule(rule)
        self.rules = [each for each in self.rules if format_rule(each) != text]
        self._policy = self._make_policy(*self.rules)

    def allow(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether approved rules allow a call."""
        if tool not in self._tools:
            return any(rule.names(tool) for rule in self.rules)
        findings = self._policy.collect_findings(self._tools[tool], arguments)
        return _allows_all(findings) and any(finding.rule in self.rules for finding in findings)

    def suggest(self, tool: str, arguments: Mapping[str, Any]) -> tuple[Rule, ...]:
        """Return the rules that would allow this call and similar ones; () if no rule can."""
        known = self._tools.get(tool)
        if known is None:
            return (Rule(Verdict.ALLOW, tool, origin=SESSION_ORIGIN),)
        rules: list[Rule] = []
        for finding in self.list_open_findings(tool, arguments):
            candidates = self._list_candidates(known, arguments, finding)
            part = {**arguments}
            if finding.command:
                part[known.rule_argument] = finding.command
            rule = next((rule for rule in candidates if self._allows(rule, known, part)), None)
            if rule is None:
                return ()
            rules.append(rule)
        return tuple(dict.fromkeys(rules))

    def list_open_findings(self, tool: str, arguments: Mapping[str, Any]) -> list[CallFinding]:
        """Return the findings of the parts of a call that no rule allows."""
        if tool not in self._tools:
            return []
        findings = self._policy.collect_findings(self._tools[tool], arguments)
        return [finding for finding in findings if finding.verdict != Verdict.ALLOW]

    def _allows(self, rule: Rule, tool: Tool, arguments: Mapping[str, Any]) -> bool:
        policy = self._make_policy(*self.rules, rule)
        return _allows_all(policy.collect_findings(tool, arguments))

    def _make_policy(self, *rules: Rule) -> RulePolicy:
        return RulePolicy(
            replace(self._permissions, rules=(*self._permissions.rules, *rules)),
            workspace=self._context.workspace,
            user_home=self._context.user_home,
            tools=self._tools,
            tier=lambda: "",
        )

    def _list_candidates(
        self, tool: Tool, arguments: Mapping[str, Any], finding: CallFinding
    ) -> Iterator[Rule]:
        """Yield rules for one finding, the most general one first."""
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
            yield Rule(Verdict.ALLOW, tool.name, pattern, SESSION_ORIGIN, base)


def _allows_all(findings: list[CallFinding]) -> bool:
    return all(finding.verdict == Verdict.ALLOW for finding in findings)


def _list_command_patterns(command: str) -> Iterator[str]:
    """Yield patterns for a simple command: its program with any arguments, the command itself."""
    from .program_wrappers import get_program_name, strip_wrappers
    from .shell_parser import parse_command

    script = parse_command(command)
    words = strip_wrappers(script.commands[0].words) if len(script.commands) == 1 else ()
    if script.problems or not get_program_name(words):
        return
    values = [word.value or "" for word in words]
    if prefix := _find_prefix(get_program_name(words), values):
        yield f"{prefix}:*"
    if "*" not in command:
        yield command


def _find_prefix(name: str, words: Sequence[str]) -> str:
    """Return the words of a command that an approval covers with any arguments, "" for none."""
    from .program_wrappers import strip_version

    is_python = strip_version(name) == "python"
    if is_python and words[1:2] == ["-m"] and words[2:3] and words[2] not in RUNNING_MODULES:
        module = _find_prefix(words[2], words[2:]) if _PLAIN_WORD.fullmatch(words[2]) else ""
        return f"{words[0]} -m {module}" if module else ""
    runs_next = words[1:2] and words[1] in RUNNING_SUBCOMMANDS
    if runs_next and _takes_program(name, words[1]):
        program = _find_prefix(words[2], words[2:]) if words[2:3] else ""
        return f"{words[0]} {words[1]} {program}" if program[:1].isalnum() else ""
    if name in SUBCOMMAND_PROGRAMS:
        count = 3 if runs_next else 2
    elif strip_version(name) in INTERPRETERS | RUNNERS | CAUTIOUS_PROGRAMS | READING_PROGRAMS:
        return ""
    else:
        count = 1
    prefix = words[:count]
    is_plain = len(prefix) == count and all(map(_PLAIN_WORD.fullmatch, prefix[1:]))
    return " ".join(prefix) if is_plain else ""


def _takes_program(name: str, subcommand: str) -> bool:
    """Return whether the argument of a subcommand that runs something is a program."""
    if subcommand.startswith("run"):
        return name == "uv" or (name in SUBCOMMAND_PROGRAMS and name not in SCRIPT_RUNNERS)
    return name in SUBCOMMAND_PROGRAMS


def load_approved(home: str, folder: str) -> tuple[Rule, ...]:
    """Return the rules that the user keeps for a folder or one of its parents.

    Arguments:
        home: mudroom's state folder.

    Raises UsageError if the file cannot be read.
    """
    path = Path(home, APPROVED_FILE)
    kept = _read(path)
    real = Path(os.path.realpath(folder))
    return tuple(
        parse_rule(text, Verdict.ALLOW, origin=FOLDER_ORIGIN, base=str(place))
        for place in (real, *real.parents)
        for text in kept.get(str(place), [])
    )


def keep_approved(home: str, folder: str, rules: tuple[Rule, ...]) -> str:
    """Keep rules for a folder and all below it; return the path of the file."""
    path = Path(home, APPROVED_FILE)
    kept = _read(path)
    texts = kept.setdefault(os.path.realpath(folder), [])
    texts.extend(text for text in map(format_rule, rules) if text not in texts)
    _write(path, kept)
    return str(path)


def forget_approved(home: str, rule: Rule) -> None:
    """Remove a rule that `load_approved` returned from its file."""
    path = Path(home, APPROVED_FILE)
    kept = _read(path)
    texts = [text for text in kept.get(rule.base, []) if text != format_rule(rule)]
    kept = {**kept, rule.base: texts}
    _write(path, {place: texts for place, texts in kept.items() if texts})


def format_rule(rule: Rule) -> str:
    """Return a rule as it is written in settings."""
    return f"{rule.tool}({rule.pattern})" if rule.pattern else rule.tool


def _read(path: Path) -> dict[str, list[str]]:
    try:
        return msgspec.json.decode(read_regular_file(path), type=dict[str, list[str]])
    except (OSError, ValueError) as error:
        if is_missing(path, error):
            return {}
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"the approved rules cannot be read: {reason}",
            where=str(path),
            remedy="Repair or remove the file.",
        ) from None


def _write(path: Path, kept: Mapping[str, Sequence[str]]) -> None:
    os.makedirs(path.parent, mode=0o700, exist_ok=True)
    replace_private_file(path, msgspec.json.format(msgspec.json.encode(kept)) + b"\n")
