"""Commands and their words: what a word will be when the command runs, as far as that can be known from the text alone."""

from __future__ import annotations

import re

from msgspec import Struct


class Word(Struct, frozen=True):
    """One word.

    Arguments:
        raw: as written. value: what it will be, None when only bash can tell (expansions, patterns, braces).
        doubt: why it may not even be one word, or "".
    """

    raw: str
    value: str | None
    doubt: str = ""

    @property
    def spelling(self) -> str:
        """The word as rules are compared with it: its value, quoted where it would be taken for several words."""
        if self.value is None:
            return self.raw
        return (
            self.value
            if re.fullmatch(r"[^\s'\"\\;&|<>()`$]+", self.value)
            else "'" + self.value.replace("'", "'\\''") + "'"
        )


class Redirect(Struct, frozen=True):
    """Where a command's input comes from or its output goes: `operator` as written, `target` None where there is none."""

    operator: str
    target: Word | None

    @property
    def writes_file(self) -> bool:
        """Whether it opens a file for writing."""
        return ">" in self.operator and not (
            self.operator.endswith(">&")
            and self.target is not None
            and re.fullmatch(r"\d+|-", self.target.raw)
        )


class SimpleCommand(Struct, frozen=True):
    """One simple command: as written, its words, the variables set before it, its redirects."""

    text: str
    words: tuple[Word, ...] = ()
    variables: tuple[str, ...] = ()
    redirects: tuple[Redirect, ...] = ()


class Script(Struct, frozen=True):
    """A command line: every simple command found in it, in order, and why there may be more than was found."""

    commands: tuple[SimpleCommand, ...]
    doubts: tuple[str, ...] = ()


def word_set(text: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(text.split())


_ESCAPED = re.compile(r"\\.", re.DOTALL)
_EXPANDS = re.compile(r"`|\$[({\w@*#?$!'\"-]")
_SPECIAL = re.compile(r"[\s'\"`;&|<>()]|\$[({\w@*#?$!'\"-]")
_PATTERN = re.compile(r"[*?\[{]")
_ANSI = re.compile(r"\$'((?:\\.|[^\\'])*)'", re.DOTALL)
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
    """Whether text that the grammar calls plain holds an expansion or a substitution."""
    return bool(_EXPANDS.search(_ESCAPED.sub("", text)))


def parse_word(raw: str, kind: str) -> Word:
    """A word from its text and the grammar's name for it."""
    if kind in ("word", "number"):
        return _parse_bare(raw)
    if kind == "raw_string":
        whole = re.fullmatch(r"'([^']*)'", raw)
        return Word(raw, whole[1]) if whole else Word(raw, None, "quotes were not understood")
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
    if (
        len(raw) < 2
        or raw[0] != '"'
        or raw[-1] != '"'
        or ('"' in _ESCAPED.sub("", inner) and not has_expansion(inner))
    ):
        return Word(raw, None, "quotes were not understood")
    if has_expansion(inner):
        return Word(raw, None)
    return Word(raw, re.sub(r'\\([$`"\\])', r"\1", inner.replace("\\\n", "")))


def _parse_ansi_quoted(raw: str) -> Word:
    whole = _ANSI.fullmatch(raw)
    if not whole:
        return Word(raw, None, "quotes were not understood")
    escapes = re.findall(r"\\(.)", whole[1], re.DOTALL)
    if any(letter not in _SIMPLE_ESCAPES for letter in escapes):
        return Word(raw, None)
    return Word(raw, re.sub(r"\\(.)", lambda found: _SIMPLE_ESCAPES[found[1]], whole[1]))


_PIECES = re.compile(
    r"'[^']*'|\$'(?:\\.|[^\\'])*'|\"(?:\\.|[^\"\\])*\"|(?:\\.|[^\s'\"\\;&|<>()`$])+", re.DOTALL
)


def _parse_concatenation(raw: str) -> Word:
    """Pieces without a blank between them."""
    if _EXPANDS.search(
        re.sub(
            r"\$(?=')",
            "",
            re.sub(r"'[^']*'|\\.", lambda found: "'" if found[0][0] == "'" else "", raw),
        )
    ):
        return Word(raw, None)
    value, at, known = "", 0, True
    while at < len(raw):
        piece = _PIECES.match(raw, at)
        if piece is None:
            return Word(raw, None, "a word was not understood")
        text, at = piece[0], piece.end()
        kind = {"'": "raw_string", '"': "string", "$": "ansi_c_string"}.get(text[0], "word")
        read = parse_word(text, kind)
        if read.doubt:
            return Word(raw, None, read.doubt)
        known, value = known and read.value is not None, value + (read.value or "")
    return Word(raw, value if known else None)
