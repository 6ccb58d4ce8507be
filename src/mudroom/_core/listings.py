"""Lists of agents and skills in tool descriptions, sized to the model's context window."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from .messages import CHARACTERS_PER_TOKEN

# Share of the context window that all lists together may take: every request pays for it.
_FRACTION = 0.01
# Tokens; assumed for a model whose window is unknown.
_DEFAULT_WINDOW = 128_000
_MIN_CHARACTERS = 1_000
_MAX_CHARACTERS = 16_000
# The "- ", ": " around a name in a list.
_MARKUP = 4
# A description cut to fewer characters says nothing: then only names are listed.
_MIN_DESCRIPTION = 20
_MAX_FOUND = 8

Entries = Sequence[tuple[str, str]]


class ListingLimits(Struct, frozen=True):
    """How much a tool description may list: characters of all lists, and models for `task`."""

    characters: int = int(_DEFAULT_WINDOW * _FRACTION) * CHARACTERS_PER_TOKEN
    models: tuple[str, ...] = ()


def count_listed_characters(window: int) -> int:
    """Return the characters available to all lists; `window` is in tokens, 0 if unknown."""
    characters = int((window or _DEFAULT_WINDOW) * _FRACTION) * CHARACTERS_PER_TOKEN
    return max(_MIN_CHARACTERS, min(_MAX_CHARACTERS, characters))


def choose_description_length(entries: Entries, characters: int) -> int | None:
    """Choose the maximum length of a description; None if none must be cut, 0 for names only.

    Short descriptions stay whole and the others get equal shares. Names are always listed.
    """
    left = characters - sum(len(name) + _MARKUP for name, _ in entries)
    lengths = sorted(len(description) for _, description in entries)
    for position, length in enumerate(lengths):
        share = left // (len(lengths) - position)
        if length > share:
            return share if share >= _MIN_DESCRIPTION else 0
        left -= length
    return None


def format_entries(entries: Entries, length: int | None) -> str:
    if length == 0:
        return ", ".join(name for name, _ in entries)
    return "\n".join(f"- {name}: {_cut(description, length)}" for name, description in entries)


def find_entries(words: str, entries: Entries) -> str:
    """Format the entries that contain most of the words, uncut; "" if none match."""
    wanted = words.lower().split()
    scored = [
        (sum(word in f"{name} {description}".lower() for word in wanted), name, description)
        for name, description in entries
    ]
    scored.sort(key=lambda entry: -entry[0])
    matching = [(name, description) for score, name, description in scored[:_MAX_FOUND] if score]
    return format_entries(matching, None)


def _cut(text: str, length: int | None) -> str:
    return text if length is None or len(text) <= length else f"{text[: length - 1]}…"


def count_noun(count: int, noun: str) -> str:
    """Format a count with its noun: "1 tool use", "1,200 tool uses"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_size(size: int) -> str:
    """Format a number of bytes: 950 B, 2.3 kB, 41 MB."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= scale:
            decimals = 1 if size < 10 * scale else 0
            return f"{size / scale:,.{decimals}f} {unit}"
    return f"{size} B"
