"""Text layout for screens: figures, widths, wrapping, glyphs and colors.

`rich.text` could also wrap and truncate, but importing it takes 20 ms. `rich.cells` takes 10 ms and
is imported only for text with wide characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from zlib import crc32

from msgspec import Struct

from ..._platform.patterns import compile_later
from ..._projections.safe_text import sanitize
from .theme import apply_theme

# A screen line as (text, style) parts; a style is a list of words such as "bold red".
Line = Sequence[tuple[str, str]]

# Start of a diff line: its sign and number.
_DIFFERENCE_START = compile_later(r" *+(?:[-+] ++|(?<=  ))[0-9]++  ")
# Start of an indented line, perhaps numbered.
_INDENTED_START = compile_later(r"  +([0-9]+\. )?")
# Text in which every character takes one column. Includes the glyphs, so that drawing them does not
# import a table of character widths.
_NARROW = compile_later("[\\x20-\\x7e├└│─⎿●→·…▸▰▱⠀-⣿]*")

# Chinese and Japanese characters: a line may break between two of them.
_WIDE = "\u2e80-\ua4cf\uf900-\ufaff\uff01-\uff60\U00020000-\U0003ffff"
# No line begins with a closing mark or ends with an opening one.
_OPENING = "（［｛《〈「『【〔“‘([{<"
_CLOSING = "，。、；：！？％…）］｝》〉」』】〕ー”’,.;:!?%)\\]}>"
# Matches the empty text wherever a line may break without a blank. Compiled at first use, because
# that takes some milliseconds.
BREAKS = (
    rf"(?<=[{_WIDE}])(?<![{_OPENING}])(?![\s{_CLOSING}])"
    rf"|(?<=[^\s{_OPENING}])(?![{_CLOSING}])(?=[{_WIDE}])"
)

# Prefix of a line's further rows, to tell them from the next line.
HANGING = "  "

_SECONDS_PER_DAY = 86_400

# Erases from the start of the row down. Erases the row first, because tmux copies a screen erased
# as a whole to its scrollback.
ERASE_DOWN = "\x1b[2K\x1b[C\x1b[J\x1b[D"

STYLE_CODES = {
    "bold": "1",
    "dim": "2",
    "reverse": "7",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
_AGENT_COLORS = ("cyan", "green", "magenta", "blue")


class Glyphs(Struct, frozen=True):
    tee: str = "├─ "
    end: str = "└─ "
    bar: str = "│  "
    hook: str = "⎿ "
    head: str = "● "
    arrow: str = "→ "
    dot: str = " · "
    more: str = "…"
    mark: str = "▸"
    full: str = "▰"
    empty: str = "▱"
    spinner: str = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


UNICODE = Glyphs()
ASCII = Glyphs("|- ", "`- ", "|  ", "> ", "* ", "-> ", " - ", "..", ">", "#", "-", "|/-\\")


def choose_glyphs(encoding: str | None) -> Glyphs:
    """Choose glyphs that a stream can encode; all if it has no encoding."""
    try:
        "├└│─⎿●→·…▸▰▱⠋".encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


def format_tokens(count: int) -> str:
    """Format a token count in at most six columns: 950, 41.4k, 1.2M."""
    if count < 1000:
        return str(count)
    # 999,950 and more would be rounded to 1000.0k.
    return f"{count / 1000:.1f}k" if count < 999_950 else f"{count / 1_000_000:.1f}M"


def format_seconds(span: float) -> str:
    """Format a number of seconds: 4.2s, 29s, 1m 04s, 2h 05m, 62d 21h."""
    # 9.95 and more would be rounded to 10.0s.
    if span < 9.95:
        return f"{span:.1f}s"
    whole = int(span + 0.05)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    if whole < _SECONDS_PER_DAY:
        return f"{whole // 3600}h {whole % 3600 // 60:02}m"
    return f"{whole // _SECONDS_PER_DAY}d {whole % _SECONDS_PER_DAY // 3600:02}h"


def format_total_costs(usd: float, *, is_least: bool, decimals: int = 2) -> str:
    """Format a total cost, "" if it rounds to nothing; `is_least` if some prices are unknown."""
    amount = f"${usd:.{decimals}f}"
    if not float(amount[1:]):
        return "cost not known" if is_least else ""
    return f"at least {amount}" if is_least else amount


def format_costs(usd: float) -> str:
    return f"${usd:,.2f}" if usd >= 0.005 else "<$0.01"


def measure_width(text: str) -> int:
    """Measure a text's columns on a terminal; most CJK characters take two."""
    if _NARROW.fullmatch(text):
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def truncate(text: str, columns: int, more: str = "…") -> str:
    """Cut a text to `columns`, with `more` at the end."""
    if measure_width(text) <= columns:
        return text
    if columns <= len(more):
        return more[: max(0, columns)]
    if _NARROW.fullmatch(text):
        return text[: columns - len(more)] + more
    from rich.cells import set_cell_size

    return set_cell_size(text, columns - len(more)).rstrip() + more


def wrap(line: str, columns: int, *, keeps_words: bool = False) -> Iterator[str]:
    """Yield parts of at most `columns`, wrapped between words where possible.

    With `keeps_words`, an overlong ASCII word, such as a path, is a separate part.
    """
    # A wide character takes two columns: in narrower rows the loop would never end.
    columns = max(2, columns)
    position = 0
    while len(window := _take_window(line, position, columns)) < len(line) - position or (
        measure_width(window) > columns
    ):
        head = truncate(window, columns, "")
        end = _find_break(window, len(head))
        if end <= 0:
            end = len(head) or 1
            if keeps_words and window.partition(" ")[0].isascii():
                blank = line.find(" ", position)
                word = line[position : blank if blank >= 0 else None]
                end = len(word) or 1 if word.isascii() else end
        yield line[position : position + end]
        position += end
        while line.startswith(" ", position):
            position += 1
        if position == len(line):
            return
    yield line[position:]


def _take_window(line: str, start: int, columns: int) -> str:
    """Take a part of a line wider than `columns`, or the rest of the line.

    Measuring the whole rest for each part of a long line would take quadratic time.
    """
    size = 2 * columns
    while len(window := line[start : start + size]) == size and measure_width(window) <= columns:
        size *= 2  # some characters take no column
    return window


def _find_break(line: str, length: int) -> int:
    """Find the last position up to `length` where a line may break; 0 or less for none."""
    if line[length : length + 1] == " ":
        return length
    blank = line.rfind(" ", 0, length)
    if _NARROW.fullmatch(line, 0, length):
        return blank
    places = (match.start() for match in re.finditer(BREAKS, line[: length + 1]))
    return max((place for place in places if blank < place <= length), default=blank)


def wrap_indented(text: str, columns: int) -> Iterator[str]:
    """Wrap a line between words; rows after an indented or numbered first one are indented."""
    start = _INDENTED_START.match(text)
    length = start.end() if start else 0
    is_numbered = start is not None and bool(start[1])
    indent = length if is_numbered else length + len(HANGING)
    if not length or indent > columns // 2:
        yield from wrap(text, columns)
        return
    yield from wrap_hanging(text, columns, indent, start=length)


def wrap_hanging(
    text: str, columns: int, indent: int, *, start: int = 0, keeps_words: bool = False
) -> Iterator[str]:
    """Wrap the text after `start`, indenting further rows. See `wrap`."""
    first = next(wrap(text[start:], columns - start, keeps_words=keeps_words))
    yield text[:start] + first
    if rest := text[start + len(first) :].lstrip(" "):
        for part in wrap(rest, columns - indent, keeps_words=keeps_words):
            yield " " * indent + part


def wrap_line(line: Line, columns: int) -> Iterator[Line]:
    """Wrap a line between words, keeping its indentation in all rows."""
    line = [(text.expandtabs(4), style) for text, style in line]
    if sum(measure_width(text) for text, _ in line) <= columns:
        yield line
        return
    text = "".join(text for text, _ in line)
    style = line[0][1] if len(line) == 1 else ""
    words = text.lstrip(" ")
    indent = text[: min(len(text) - len(words), columns // 2)]
    for part in wrap(words, columns - len(indent)):
        yield [(indent + part, style)]


def split_line(line: Line, columns: int) -> Iterator[Line]:
    """Split a line into rows of at most `columns`, after a blank where possible.

    Keeps styles and all characters. Further rows are indented: those of a diff begin below its
    text.
    """
    columns = max(2, columns)
    line = [(text.expandtabs(4), style) for text, style in line]
    text = "".join(part for part, _ in line)
    indent = _find_indent(text, columns)
    at = 0
    while True:
        room = columns - indent if at else columns
        head = _cut_after_blank(truncate(text[at:], room, ""), text[at:])
        row = _cut_parts(line, at, at + len(head))
        yield [(" " * indent, ""), *row] if at and indent else row
        at += len(head)
        if at >= len(text):
            return


def _find_indent(text: str, columns: int) -> int:
    """Find the indent of further rows; 0 on a screen without room for it."""
    difference = _DIFFERENCE_START.match(text)
    blanks = len(text) - len(text.lstrip(" "))
    indent = difference.end() if difference else blanks + len(HANGING)
    return indent if indent <= columns // 2 else 0


def _cut_parts(line: Line, start: int, end: int) -> Line:
    parts: list[tuple[str, str]] = []
    at = 0
    for text, style in line:
        part = text[max(0, start - at) : max(0, end - at)]
        if part:
            parts.append((part, style))
        at += len(text)
    return parts


def _cut_after_blank(head: str, text: str) -> str:
    """Drop the last word of `head` if the rest of `text` continues it.

    If a word ends exactly at the row's end, the next row begins with the blank.
    """
    rest = text[len(head) :]
    if not rest or rest.startswith(" "):
        return head
    # Cut a word longer than half the row: rows must not be nearly empty.
    end = head.rfind(" ") + 1
    return head[:end] if end > len(head) // 2 else head


def wrap_last_lines(text: str, columns: int, count: int) -> list[str]:
    """Wrap a text to `columns` and return the last `count` rows."""
    # More characters cannot be shown, and wrapping long text is slow.
    text = text.strip("\n")[-count * columns :]
    if not text:
        return []
    rows = [row for line in text.split("\n") for row in wrap(line.expandtabs(4), columns)]
    return rows[-count:]


def fit_with_figures(
    text: str,
    figures: Sequence[str],
    columns: int,
    glyphs: Glyphs,
    *,
    in_brackets: bool = False,
    min_columns: int = 12,
) -> tuple[str, str]:
    """Fit text and the figures after it into `columns`; return (text, figures).

    Text is truncated down to `min_columns` before figures are dropped, first one first.
    """
    shown = list(figures)
    while True:
        joined = glyphs.dot.join(shown)
        tail = ""
        if shown:
            tail = f" ({joined})" if in_brackets else glyphs.dot + joined
        room = columns - measure_width(tail)
        if not shown or room >= min(measure_width(text), min_columns):
            return truncate(text, room, glyphs.more), tail
        shown.pop(0)


def choose_agent_color(agent: str) -> str:
    known = {"explore": "cyan", "general": "green"}
    if agent in known:
        return known[agent]
    # Not `hash`, which differs between processes.
    return _AGENT_COLORS[crc32(agent.encode("utf-8", "replace")) % len(_AGENT_COLORS)]


def paint(lines: Iterable[Line], *, color: bool) -> str:
    """Join lines, each ending in a line feed; with `color`, in the theme's colors.

    Text is sanitized, so the only escape sequences are those of the styles.
    """
    return "".join(
        "".join(_paint_part(sanitize(text), style if color else "") for text, style in line) + "\n"
        for line in lines
    )


def _paint_part(text: str, style: str) -> str:
    codes = ";".join(STYLE_CODES[name] for name in style.split())
    if not (codes and text):
        return text
    start = apply_theme(f"\x1b[{codes}m")
    return f"{start}{text}\x1b[0m"
