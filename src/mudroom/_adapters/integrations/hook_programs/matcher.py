"""Matchers of hooks: exact names, or regular expressions in JavaScript's syntax."""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from ...._platform.patterns import compile_later

_NAMES = compile_later(r"[A-Za-z0-9_\- ,|]*")
# Earlier names of tools, which matchers may still use.
_OTHER_NAMES = {"Agent": "Task"}
# Syntax that Python lacks or reads differently, with a name for messages.
_UNKNOWN_HERE = (
    (compile_later(r"\\[pP]\{"), r"\p{...}"),
    (compile_later(r"\\u\{"), r"\u{...}"),
    (compile_later(r"\\c[A-Za-z]"), r"\cX"),
    (compile_later(r"\[\^?\](?!.*\])"), "[] or [^]"),
    (compile_later(r"\(\?P"), "(?P...), which JavaScript lacks"),
    (compile_later(r"\\[AZ]"), r"\A or \Z, which JavaScript lacks"),
)
# Characters; checking an expression takes the square of its length.
_MAX_LENGTH = 2_000


class Matcher(Struct, frozen=True):
    """A matcher from a settings file.

    Arguments:
        names: exact names; None if the matcher is a regular expression or selects everything.
        pattern: the regular expression.
        problem: why the matcher cannot be used and so selects nothing, or "".
    """

    names: frozenset[str] | None = None
    pattern: re.Pattern[str] | None = None
    problem: str = ""

    def matches(self, name: str) -> bool:
        """Return whether the matcher selects a tool, agent, source or reason."""
        if self.problem:
            return False
        candidates = {name, _OTHER_NAMES.get(name, name)}
        if self.names is not None:
            return not self.names.isdisjoint(candidates)
        pattern = self.pattern
        return pattern is None or any(pattern.search(each) for each in candidates)


@lru_cache(maxsize=1024)
def parse_matcher(text: str) -> Matcher:
    """Parse a matcher. Never raises; see `Matcher.problem`."""
    if text in ("", "*"):
        return Matcher()
    if _NAMES.fullmatch(text):
        names = (name.strip() for name in re.split(r"[|,]", text))
        return Matcher(names=frozenset(filter(None, names)))
    if len(text) > _MAX_LENGTH:
        start = f"{text[:40]!r}…"
        return Matcher(problem=f"the matcher {start} has more than {_MAX_LENGTH:,} characters")
    for syntax, name in _UNKNOWN_HERE:
        if syntax.search(text):
            return Matcher(problem=f"the matcher {text!r} has {name}")
    try:
        return Matcher(pattern=re.compile(_translate(text)))
    except re.error as error:
        return Matcher(problem=f"the matcher {text!r} is no regular expression: {error}")


def _translate(text: str) -> str:
    """Translate an expression from JavaScript's syntax to Python's."""
    text = re.sub(r"\(\?<(?![=!])", "(?P<", text)
    text = re.sub(r"\\k<(\w+)>", r"(?P=\1)", text)
    # In JavaScript, `$` does not match before a final line feed.
    return re.sub(r"(?<!\\)((?:\\\\)*)\$(?![^\[]*\])", r"\1\\Z", text)
