"""Numbers with their nouns and units, for texts."""

from __future__ import annotations


def count_noun(count: int, noun: str) -> str:
    """Return a number with its noun: "1 tool use", "1,200 tool uses"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_size(size: int) -> str:
    """Format a number of bytes: 950 B, 2.3 kB, 41 MB."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= scale:
            decimals = 1 if size < 10 * scale else 0
            return f"{size / scale:,.{decimals}f} {unit}"
    return f"{size} B"
