"""Rules as people write them, `Tool` or `Tool(what)`, each with the place it comes from; and the modes they are applied in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from msgspec import Struct

from .._core.agents import Mode
from .._core.tools import canonical_tool_name
from ..errors import UsageError

DENY, ASK, ALLOW = "deny", "ask", "allow"
VERDICTS = (DENY, ASK, ALLOW)
"""The order in which rules are looked at: the first one that fits decides, however special a later one is."""

FILE_TOOLS = {
    "write": "edit",
    "edit": "edit",
    "read": "read",
    "glob": "read",
    "grep": "read",
    "ls": "read",
}
"""Tools whose rules name files, and the tool whose rules hold for them."""

_RULE = re.compile(r"\s*([A-Za-z_][\w.*-]*)\s*(?:\((.*)\))?\s*", re.DOTALL)


class Rule(Struct, frozen=True):
    """One rule.

    Arguments:
        verdict: "deny", "ask" or "allow". tool: our name of the tool, or a pattern with *. spec: what is in the brackets, "" for all.
        origin: the file and line, or the flag, it comes from. base: the folder that a path beginning with / is below.
    """

    verdict: str
    tool: str
    spec: str = ""
    origin: str = ""
    base: str = ""

    def __str__(self) -> str:
        words = f"{self.tool}({self.spec})" if self.spec else self.tool
        return f"{self.verdict} {words}" + (f" ({self.origin})" if self.origin else "")

    def applies_to(self, tool: str) -> bool:
        """Whether the rule is about this tool."""
        if self.tool == tool or (
            self.spec and FILE_TOOLS.get(self.tool) == FILE_TOOLS.get(tool, "-")
        ):
            return True
        if self.tool.startswith("mcp__") and self.tool.count("__") == 1:
            return tool.startswith(f"{self.tool}__")
        return "*" in self.tool and fnmatchcase(tool, self.tool)


UNDECIDED = "open"
"""No rule is about it: the mode decides."""
READ, EDIT, RUN, EXTERNAL = "read", "edit", "run", "reach"
"""What a call does: reads the workspace, changes files of it, runs a program, reaches beyond the machine."""


class CallFinding(Struct, frozen=True):
    """What is known of one part of a call.

    Arguments:
        verdict: "deny", "ask", "allow" or OPEN. kind: READ, EDIT, RUN or REACH. rule: the one that decided, if any.
    """

    verdict: str
    kind: str
    why: str = ""
    rule: Rule | None = None
    command: str = ""


def parse_rule(text: str, verdict: str, *, origin: str = "", base: str = "") -> Rule:
    """A rule from its text. Raises UsageError naming text and origin."""
    found = _RULE.fullmatch(text)
    if found is None:
        raise UsageError(
            f"not a rule: {text!r}",
            where=origin,
            remedy="Rules look like Bash(git diff:*), Read(./secrets/**), task(explore).",
        )
    spec = (found[2] or "").strip()
    tool = canonical_tool_name(found[1])
    if tool == "bash" and ":*" in spec[:-2]:
        raise UsageError(
            f"in {text!r} :* is not at the end",
            where=origin,
            remedy="Write * there, or move :* to the end.",
        )
    if spec == "*" or (tool == "bash" and spec == ":*"):
        spec = ""
    return Rule(verdict, tool, spec, origin, base)


def split_rules(texts: Iterable[str]) -> list[str]:
    """The rules in flags: separated by commas or blanks, but not inside brackets."""
    found: list[str] = []
    for text in texts:
        depth, word = 0, ""
        for c in text:
            depth += (c == "(") - (c == ")" and depth > 0)
            if not depth and (c == "," or c.isspace()):
                found.append(word)
                word = ""
            else:
                word += c
        found.append(word)
    return [word for word in found if word]


def parse_rules(
    texts: Iterable[str], verdict: str, *, origin: str = "", base: str = ""
) -> tuple[Rule, ...]:
    """Rules of one verdict and origin. Raises UsageError."""
    return tuple(parse_rule(text, verdict, origin=origin, base=base) for text in texts)


@lru_cache(maxsize=1024)
def _compile_pattern(spec: str) -> re.Pattern[str]:
    if spec.endswith(":*"):
        spec = spec[:-2] + " *"
    end = r"(?: .*)?" if spec.endswith(" *") else ""
    body = spec[:-2] if end else spec
    return re.compile(".*".join(re.escape(piece) for piece in body.split("*")) + end, re.DOTALL)


def matches_pattern(spec: str, text: str) -> bool:
    """Whether a pattern of a rule fits a whole command: * stands for anything, a last " *" or ":*" for nothing or more words."""
    return _compile_pattern(spec).fullmatch(text) is not None


def is_literal(spec: str) -> bool:
    """Whether a pattern stands for itself alone."""
    return "*" not in spec


class Permissions(Struct, frozen=True, kw_only=True):
    """What the runs of a session may do.

    Arguments:
        rules: in any order; deny is looked at before ask, ask before allow.
        mode: what holds where no rule does. attended: whether a person can be asked.
        only_listed: where nobody can be asked, refuse what no rule allows; reading stays free.

    Example:
        Permissions.of(deny=["Bash(git push:*)", "Read(.env)"])
    """

    rules: tuple[Rule, ...] = ()
    mode: Mode = Mode.DEFAULT
    attended: bool = False
    only_listed: bool = False

    @classmethod
    def of(
        cls,
        *,
        allow: Sequence[str] = (),
        ask: Sequence[str] = (),
        deny: Sequence[str] = (),
        mode: str = "default",
    ) -> Permissions:
        """Permissions from texts of rules. Naming what is allowed leaves out all else but reading. Raises UsageError."""
        pairs = ((DENY, deny), (ASK, ask), (ALLOW, allow))
        rules = tuple(rule for verdict, texts in pairs for rule in parse_rules(texts, verdict))
        return cls(rules=rules, mode=Mode(mode), only_listed=bool(allow))
