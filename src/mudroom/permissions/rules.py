"""Permission rules of the form `Tool` or `Tool(pattern)`, and a session's permissions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache

from msgspec import Struct

from .._core.agents import Agent, Mode
from .._core.tool_names import parse_tool_pattern
from .._core.type_checks import NamedFields
from .._platform.patterns import compile_later
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
        if self.tool.startswith("mcp__") and self.tool.count("__") == 1:
            return tool.startswith(f"{self.tool}__")
        return "*" in self.tool and fnmatchcase(tool, self.tool)


class CallFinding(Struct, frozen=True):
    """The judgement of one part of a call, before the permission mode is applied.

    Arguments:
        why: the reason, for the model and the user.
        rule: the rule that decided, or None.
        command: the simple command it is about, or "".
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
    """Return the texts of a pattern, and between them its stars: `*`, `:*`, at the end " *"."""
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
        # The literal may begin at each end of what is before the star, and at all later places
        # from `free` on.
        begins = {"*": "", ":*": ": ", " *": " "}[star]
        after = [end for end in ends if not begins or text[end : end + 1] in tuple(begins)]
        free = min(after, default=len(text) + 1) + bool(begins)
        ends = {end + len(literal) for end in ends if text.startswith(literal, end)}
        ends.update(_list_ends(literal, text, free))
    return len(text) in ends


def _list_ends(literal: str, text: str, start: int) -> Iterator[int]:
    """Yield where a text ends in another one, from a place on."""
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
        """Return the agents no rule denies, so that models are not offered the others."""
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
