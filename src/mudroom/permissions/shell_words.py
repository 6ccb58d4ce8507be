"""Values for parsed shell commands, and the parsing of single words.

A word has a value if its text alone tells what it expands to.
"""

from __future__ import annotations

import re

from msgspec import Struct

from .._platform.patterns import compile_later


class Word(Struct, frozen=True):
    """One word of a command.

    `value` is None if only bash can tell (expansions, patterns, braces). `problem` says why it may
    not even be a single word.
    """

    raw: str
    value: str | None
    problem: str = ""

    @property
    def spelling(self) -> str:
        """The text rules are compared with: the value, quoted if bash would split it."""
        if self.value is None:
            return self.raw
        if re.fullmatch(r"[^\s'\"\\;&|<>()`$]+", self.value):
            return self.value
        return "'" + self.value.replace("'", "'\\''") + "'"


class Redirect(Struct, frozen=True):
    operator: str
    target: Word | None

    @property
    def writes_file(self) -> bool:
        if ">" not in self.operator or self.target is None:
            return False
        # `>& 2` copies a descriptor, but `>& name` writes a file.
        if self.operator.endswith(">&"):
            return not re.fullmatch(r"\d+|-", self.target.raw)
        return True


class SimpleCommand(Struct, frozen=True):
    """One simple command as written. `variables` are the names of the variables set before it."""

    text: str
    words: tuple[Word, ...] = ()
    variables: tuple[str, ...] = ()
    redirects: tuple[Redirect, ...] = ()


class Script(Struct, frozen=True):
    """A parsed command line: every simple command recognized, in order.

    `problems` say why there may be more. If it is not whole, only the beginning was parsed.
    """

    commands: tuple[SimpleCommand, ...]
    problems: tuple[str, ...] = ()
    is_whole: bool = True


def split_word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ESCAPED = compile_later(r"\\.", re.DOTALL)
_EXPANDS = compile_later(r"`|\$[({\w@*#?$!'\"-]")
_SPECIAL = compile_later(r"[\s'\"`;&|<>()]|\$[({\w@*#?$!'\"-]")
_PATTERN = compile_later(r"[*?\[{]")
_ANSI = compile_later(r"\$'((?:\\.|[^\\'])*)'", re.DOTALL)
_SIMPLE_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "r": "\r",
}


def has_expansion(text: str) -> bool:
    """Return whether text the grammar calls plain contains an expansion or substitution."""
    return bool(_EXPANDS.search(_ESCAPED.sub("", text)))


def parse_word(raw: str, kind: str) -> Word:
    if kind in ("word", "number"):
        return _parse_bare(raw)
    if kind == "raw_string":
        quoted = re.fullmatch(r"'([^']*)'", raw)
        return Word(raw, quoted[1]) if quoted else Word(raw, None, "quotes were not understood")
    if kind == "string":
        return _parse_double_quoted(raw)
    if kind == "ansi_c_string":
        return _parse_ansi_quoted(raw)
    if kind == "concatenation":
        return _parse_concatenation(raw)
    return Word(raw, None)


def _parse_bare(raw: str) -> Word:
    rest = _ESCAPED.sub("", raw)
    if _SPECIAL.search(rest) or rest.endswith("\\"):
        return Word(raw, None, "a word was not understood")
    if "\\\n" in raw:
        return Word(raw, None, "a line break inside a word")
    if _PATTERN.search(rest) and rest != "{}":
        return Word(raw, None)
    return Word(raw, re.sub(r"\\(.)", r"\1", raw))


def _parse_double_quoted(raw: str) -> Word:
    inner = raw[1:-1]
    if len(raw) < 2 or raw[0] != '"' or raw[-1] != '"':
        return Word(raw, None, "quotes were not understood")
    if has_expansion(inner):
        return Word(raw, None)
    if '"' in _ESCAPED.sub("", inner):
        return Word(raw, None, "quotes were not understood")
    return Word(raw, re.sub(r'\\([$`"\\])', r"\1", inner.replace("\\\n", "")))


def _parse_ansi_quoted(raw: str) -> Word:
    quoted = _ANSI.fullmatch(raw)
    if not quoted:
        return Word(raw, None, "quotes were not understood")
    escapes = re.findall(r"\\(.)", quoted[1], re.DOTALL)
    if any(letter not in _SIMPLE_ESCAPES for letter in escapes):
        return Word(raw, None)
    return Word(raw, re.sub(r"\\(.)", lambda escape: _SIMPLE_ESCAPES[escape[1]], quoted[1]))


_PIECES = compile_later(
    r"'[^']*'|\$'(?:\\.|[^\\'])*'|\"(?:\\.|[^\"\\])*\"|(?:\\.|[^\s'\"\\;&|<>()`$])+", re.DOTALL
)
_PIECE_KINDS = {"'": "raw_string", '"': "string", "$": "ansi_c_string"}


def _parse_concatenation(raw: str) -> Word:
    """Parse pieces written together without a blank, as in `a'b'"c"`."""
    without_quoted = re.sub(r"'[^']*'|\\.", lambda piece: "'" if piece[0][0] == "'" else "", raw)
    if _EXPANDS.search(re.sub(r"\$(?=')", "", without_quoted)):
        return Word(raw, None)
    value = ""
    at = 0
    is_known = True
    while at < len(raw):
        piece = _PIECES.match(raw, at)
        if piece is None:
            return Word(raw, None, "a word was not understood")
        at = piece.end()
        word = parse_word(piece[0], _PIECE_KINDS.get(piece[0][0], "word"))
        if word.problem:
            return Word(raw, None, word.problem)
        is_known = is_known and word.value is not None
        value += word.value or ""
    return Word(raw, value if is_known else None)
