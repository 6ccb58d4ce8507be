"""Permission rules of the form `Tool` or `Tool(pattern)`, a session's permissions, their files.

The user's settings file applies in full. A project's files, which a stranger may have written, can
only add restrictions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from .._core.agents import Agent, Mode
from .._core.tool_names import parse_tool_pattern
from .._core.type_checks import NamedFields
from .._platform.patterns import compile_later
from .._platform.regular_files import is_missing, read_regular_file
from ..errors import UsageError


class Verdict(StrEnum):
    """The result of matching a call with the rules."""

    DENY = "deny"
    ASK = "ask"
    ALLOW = "allow"
    UNDECIDED = "open"
    """Only in a CallFinding: no rule matches, so the permission mode decides."""


RULE_VERDICTS = (Verdict.DENY, Verdict.ASK, Verdict.ALLOW)
"""The order in which rules are checked. The first match decides, even if a later rule is more
specific: that way a deny rule always wins."""


class CallKind(StrEnum):
    """What a call does."""

    READ = "read"
    """Reads the workspace."""
    EDIT = "edit"
    """Changes files of the workspace."""
    RUN = "run"
    """Runs a program."""
    BOARD = "board"
    """Changes the task board."""
    EXTERNAL = "reach"
    """Acts outside the workspace."""


_TOOL_NAME = compile_later(r"[A-Za-z_][\w.*-]*")


class Rule(Struct, frozen=True):
    """A permission rule.

    Arguments:
        verdict: DENY, ASK or ALLOW.
        tool: the canonical tool name, or a pattern with `*`.
        pattern: the text in brackets; "" matches every call.
        origin: where the rule comes from: file and line, or a flag.
        base: the folder that a path pattern starting with `/` refers to.
        is_approved: true if the user approved it when asked. Its `*` then covers only arguments
            known to make the program run nothing else.

    Raises UsageError for a tool with brackets, which would match no call.
    """

    verdict: Verdict
    tool: str
    pattern: str = ""
    origin: str = ""
    base: str = ""
    is_approved: bool = False

    def __post_init__(self) -> None:
        if "(" in self.tool:
            tool, _, pattern = self.tool.removesuffix(")").partition("(")
            raise UsageError(
                "a rule has its tool and its pattern apart",
                where=self.tool,
                remedy=f'Write Rule(Verdict.{self.verdict.name}, "{tool}", "{pattern}").',
            )

    def __str__(self) -> str:
        pattern = f"{self.tool}({self.pattern})" if self.pattern else self.tool
        origin = f" ({self.origin})" if self.origin else ""
        return f"{self.verdict} {pattern}{origin}"

    def names(self, tool: str) -> bool:
        """Return whether the rule is about this tool."""
        if self.tool == tool:
            return True
        if "*" in self.tool:
            return fnmatchcase(tool, self.tool)
        # `mcp__git` alone names a whole server.
        is_server = self.tool.startswith("mcp__") and self.tool.count("__") == 1
        return is_server and tool.startswith(f"{self.tool}__")


class CallFinding(Struct, frozen=True):
    """The judgement of one part of a call, before the permission mode is applied.

    `why` is for the model and the user. `command` is the simple command it is about, or "".
    """

    verdict: Verdict
    kind: CallKind
    why: str = ""
    rule: Rule | None = None
    command: str = ""


def parse_rule(text: str, verdict: Verdict, *, origin: str = "", base: str = "") -> Rule:
    """Parse a rule. Raises UsageError naming the text and its origin."""
    pattern = parse_tool_pattern(text)
    is_name = _TOOL_NAME.fullmatch(pattern.written_name)
    if not pattern.is_valid or pattern.is_excluded or not is_name:
        raise UsageError(
            f"not a rule: {text!r}",
            where=origin,
            remedy="Rules look like Bash(git diff:*), Read(./secrets/**), task(explore).",
        )
    return Rule(verdict, pattern.tool, pattern.calls, origin, base)


def split_rules(texts: Iterable[str]) -> list[str]:
    """Split flag values into rules, at commas and blanks outside brackets."""
    rules: list[str] = []
    for text in texts:
        depth = 0
        rule = ""
        for c in text:
            depth += (c == "(") - (c == ")" and depth > 0)
            if not depth and (c == "," or c.isspace()):
                rules.append(rule)
                rule = ""
            else:
                rule += c
        rules.append(rule)
    return [rule for rule in rules if rule]


def parse_rules(
    texts: Iterable[str], verdict: Verdict, *, origin: str = "", base: str = ""
) -> tuple[Rule, ...]:
    """Parse rules with the same verdict and origin. Raises UsageError."""
    return tuple(parse_rule(text, verdict, origin=origin, base=base) for text in texts)


_STAR = compile_later(r"(:?\*)")


@lru_cache(maxsize=1024)
def _split_pattern(pattern: str) -> tuple[str, ...]:
    """Split a pattern into its texts and the stars between: `*`, `:*`, at the end " *"."""
    if not pattern.endswith((" *", ":*")):
        return tuple(_STAR.split(pattern))
    return (*_STAR.split(pattern[:-2]), " *", "")


def matches_pattern(pattern: str, text: str) -> bool:
    """Return whether a rule's pattern matches a whole command.

    `*` matches any text. " *" at the end and ":*" anywhere match any number of words, even none.

    The time grows with the length of the text, however many stars there are. A regular expression
    would try all ways to divide the text between them, and a model writes the text.
    """
    first, *others = _split_pattern(pattern)
    ends = {len(first)} if text.startswith(first) else set[int]()
    for star, literal in zip(others[::2], others[1::2], strict=True):
        # The literal may begin at each end of what precedes the star, and anywhere from `free` on.
        begins = {"*": "", ":*": ": ", " *": " "}[star]
        after = [end for end in ends if not begins or text[end : end + 1] in tuple(begins)]
        free = min(after, default=len(text) + 1) + bool(begins)
        ends = {end + len(literal) for end in ends if text.startswith(literal, end)}
        ends.update(_list_ends(literal, text, free))
    return len(text) in ends


def _list_ends(literal: str, text: str, start: int) -> Iterator[int]:
    """Yield the positions where a text ends within another, from `start` on."""
    while (start := text.find(literal, start) + 1) > 0:
        yield start - 1 + len(literal)


def matches_agent(pattern: str, name: str) -> bool:
    """Return whether a rule's pattern names an agent, ignoring case and separators."""
    if _normalize_name(pattern) == _normalize_name(name):
        return True
    return "*" in pattern and matches_pattern(pattern, name)


def _normalize_name(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def is_literal(pattern: str) -> bool:
    """Return whether a pattern matches only its own text."""
    return "*" not in pattern


class Permissions(Struct, metaclass=NamedFields, frozen=True, kw_only=True):
    """The permissions of a session's runs.

    Arguments:
        rules: rules in any order. Deny rules are checked first, then ask rules, then allow rules.
        mode: decides where no rule matches.
        can_ask: true if a user can be asked.
        denies_unlisted: without a user to ask, refuse every call that no rule allows, except
            reading.

    Example:
        Permissions.of(deny=["Bash(git push:*)", "Read(.env)"])
    """

    rules: tuple[Rule, ...] = ()
    mode: Mode = Mode.DEFAULT
    can_ask: bool = False
    denies_unlisted: bool = False

    @classmethod
    def of(
        cls,
        *,
        allow: Sequence[str] = (),
        ask: Sequence[str] = (),
        deny: Sequence[str] = (),
        mode: str = "default",
    ) -> Permissions:
        """Create permissions from rules written as text. Raises UsageError.

        Arguments:
            allow: rules that allow calls; if there are any, all other calls except reading are
                refused.
            ask: rules for calls that need confirmation.
            deny: rules that refuse calls, which take precedence.
            mode: permission mode, which decides where no rule matches.
        """
        texts = {Verdict.DENY: deny, Verdict.ASK: ask, Verdict.ALLOW: allow}
        rules = tuple(rule for verdict in texts for rule in parse_rules(texts[verdict], verdict))
        return cls(rules=rules, mode=Mode(mode), denies_unlisted=bool(allow))

    def denies_tool(self, tool: str) -> bool:
        """Return whether a rule denies every call of a tool, so that models are not offered it."""
        return any(
            rule.verdict == Verdict.DENY and not rule.pattern and rule.names(tool)
            for rule in self.rules
        )

    def select_agents(self, agents: Mapping[str, Agent]) -> dict[str, Agent]:
        """Select the agents no rule denies, so that models are not offered the others."""
        denied = [
            rule.pattern
            for rule in self.rules
            if rule.verdict == Verdict.DENY and rule.pattern and rule.names("task")
        ]
        return {
            name: agent
            for name, agent in agents.items()
            if not any(matches_agent(pattern, name) for pattern in denied)
        }


# The second is the user's own.
PROJECT_FILES = (".claude/settings.json", ".claude/settings.local.json")
USER_FILE = ".claude/settings.json"


class PermissionSettings(Struct, frozen=True):
    """Permissions read from settings files.

    `mode` is that of the user's file, narrowed by the project's. The notices tell the user which
    entries are unused, and why.
    """

    rules: tuple[Rule, ...] = ()
    mode: Mode | None = None
    forbids_bypass: bool = False
    notices: tuple[str, ...] = ()


class _RuleLists(Struct, rename="camel"):
    allow: list[Any] = []
    ask: list[Any] = []
    deny: list[Any] = []
    default_mode: str = ""
    disable_bypass_permissions_mode: str = ""


class _SettingsFile(Struct, rename="camel"):
    permissions: _RuleLists = msgspec.field(default_factory=_RuleLists)
    # Not used here, but keeps a file whose hooks cannot be decoded from being reported twice.
    hooks: Any = None


def load_permission_files(
    folder: str, *, user_home: str, reads_local: bool = True
) -> PermissionSettings:
    """Load the rules of the user's file and of the project's files.

    Project files are searched for in `folder` and its parents, up to the root of the repository;
    `reads_local` includes the user's own file among them. With "" for `folder` there are none.
    A file that cannot be read is skipped and reported in the notices.
    """
    rules: list[Rule] = []
    notices: list[str] = []
    mode: Mode | None = None
    forbids_bypass = False
    user_file = Path(user_home, USER_FILE) if user_home else None
    paths = [user_file] if user_file else []
    names = PROJECT_FILES if reads_local else PROJECT_FILES[:1]
    paths += [path for path in _list_project_files(folder, names) if path != user_file]
    for path in paths:
        is_user_file = path == user_file
        settings, text = _read(path, notices)
        lists = settings.permissions
        rules.extend(_parse_rules(path, lists, text, is_user_file, notices))
        mode = _apply_mode(path, lists.default_mode, mode, is_user_file, notices)
        forbids_bypass |= lists.disable_bypass_permissions_mode == "disable"
    return PermissionSettings(tuple(rules), mode, forbids_bypass, tuple(notices))


def _list_project_files(folder: str, names: Iterable[str]) -> Iterator[Path]:
    if not folder:
        return
    start = Path(os.path.realpath(folder))
    for place in (start, *start.parents):
        yield from (place / name for name in names)
        if (place / ".git").exists():
            return


def _read(path: Path, notices: list[str]) -> tuple[_SettingsFile, str]:
    try:
        data = read_regular_file(path)
        return msgspec.json.decode(data, type=_SettingsFile), data.decode("utf-8", "replace")
    except OSError as error:
        reason = "" if is_missing(path, error) else error.strerror or str(error)
    except ValueError as error:
        reason = str(error)
    except RecursionError:
        reason = "it nests too deeply"
    if reason:
        notices.append(f"this file is not used: {reason} ({path})")
    return _SettingsFile(), ""


def _parse_rules(
    path: Path, lists: _RuleLists, text: str, is_user_file: bool, notices: list[str]
) -> Iterator[Rule]:
    base = str(path.parent if is_user_file else path.parent.parent)
    ignored = 0
    for verdict in RULE_VERDICTS:
        for entry in map(str, getattr(lists, verdict)):
            if verdict == Verdict.ALLOW and not is_user_file:
                ignored += 1
                continue
            origin = f"{path}:{_find_line_number(text, entry)}"
            try:
                yield parse_rule(entry, verdict, origin=origin, base=base)
            except UsageError as error:
                notices.append(str(error))
    if ignored:
        notices.append(
            f"{ignored} allow rules of this folder are not used:"
            f" a project can only add restrictions ({path})"
        )


def _apply_mode(
    path: Path, name: str, current: Mode | None, is_user_file: bool, notices: list[str]
) -> Mode | None:
    """Apply a file's `defaultMode`. No file can switch permissions off."""
    if not name:
        return current
    try:
        mode = Mode(name)
    except ValueError:
        notices.append(f"unknown permission mode {name!r} ({path})")
        return current
    widest = Mode.ACCEPT_EDITS if is_user_file else current or Mode.DEFAULT
    allowed = mode.limit_to(widest)
    if allowed is not mode:
        kind = "settings" if is_user_file else "project"
        notices.append(f"a {kind} file may not set the permission mode {name} ({path})")
    return allowed


def _find_line_number(text: str, entry: str) -> int:
    at = text.find(msgspec.json.encode(entry).decode())
    return text.count("\n", 0, at) + 1 if at >= 0 else 1
