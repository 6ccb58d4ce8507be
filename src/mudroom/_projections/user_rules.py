"""Rules in the user's messages, which every compaction keeps word for word."""

from __future__ import annotations

from collections.abc import Iterable

from .._platform.lazy_pattern import compile_later

# A line that begins so is a rule.
ADDED_RULE = "Rule: "
# A line that begins so ends a rule.
REMOVED_RULE = "Rule removed: "

_LINE = compile_later(
    r"(?im)^[ \t]*(?:(?:[-*•]|\d+[.)])[ \t]*)?"
    r"(?:(rule(?: removed)?: )"
    r"|(?=(?:always|never|must|do not|don't)\b|不要|必须|禁止|始终|总是|绝不|不得))(.+)$"
)
_MAX_RULE_LENGTH = 500


def find_rules(texts: Iterable[str]) -> dict[str, str]:
    """Find the rules in the user's messages, oldest first: the text of each, and its line.

    A line that begins with `REMOVED_RULE` takes the place of the rule that it ends.
    """
    lines: dict[str, str] = {}
    for text in texts:
        for match in _LINE.finditer(text):
            rule = match[2].strip()[:_MAX_RULE_LENGTH]
            is_removed = (match[1] or "").casefold() == REMOVED_RULE.casefold()
            lines[rule] = REMOVED_RULE + rule if is_removed else match[0].strip()
    return lines


def is_marked(line: str) -> bool:
    """Tell if the user wrote a line as a rule, or to end one."""
    marks = (ADDED_RULE.casefold(), REMOVED_RULE.casefold())
    return line.casefold().startswith(marks)


def list_rules(texts: Iterable[str]) -> list[str]:
    """List the texts of the rules that hold after the user's messages."""
    lines = find_rules(texts)
    return [rule for rule, line in lines.items() if not line.startswith(REMOVED_RULE)]
