"""Output as a terminal shows it at the end, against a small terminal of the test's own."""

from __future__ import annotations

import random
import re
import time
import unicodedata

import pytest
from tests.long_form import count_examples
from tests.tools.conftest import Call, Run

from mudroom._adapters.tools._terminal_text import TerminalText

_BLANK = " "


def show(output: bytes, sizes: list[int] | None = None) -> bytes:
    """Pass output through the filter in chunks of these sizes, repeated."""
    terminal, shown, position, number = TerminalText(), b"", 0, 0
    sizes = sizes or [len(output) or 1]
    while position < len(output):
        size = sizes[number % len(sizes)]
        shown += terminal.feed(output[position : position + size])
        position, number = position + size, number + 1
    return shown + terminal.flush()


def is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in "WF"


class Screen:
    """A terminal that keeps every row as a dictionary: column -> character.

    The right half of a wide character is "".
    """

    def __init__(self) -> None:
        self.rows: list[dict[int, str]] = [{}]
        self.row = self.column = 0
        self.saved = (0, 0)

    def feed(self, text: str) -> None:
        for piece in re.findall(r"\x1b\[[0-9;?]*[A-Za-z@]|\x1b[78]|\x1b\].*?\x07|.", text, re.S):
            self._do(piece)

    def _do(self, piece: str) -> None:
        match piece:
            case "\r":
                self.column = 0
            case "\n":
                self.row, self.column = self.row + 1, 0
            case "\b":
                self.column = max(0, self.column - 1)
            case "\t":
                self.column = self.column // 8 * 8 + 8
            case "\x07" | "\0":
                pass
            case _ if piece[0] == "\x1b":
                self._escape(piece)
            case _:
                self._put(piece)
        while len(self.rows) <= self.row:
            self.rows.append({})

    def _put(self, character: str) -> None:
        row = self.rows[self.row]
        width = 1 + is_wide(character)
        for column in range(self.column, self.column + width):
            self._break(row, column)
        row.update(dict.fromkeys(range(self.column, self.column + width), ""))
        row[self.column] = character
        self.column += width

    def _break(self, row: dict[int, str], column: int) -> None:
        if row.get(column) == "":
            row[column - 1] = _BLANK
        elif is_wide(row.get(column, _BLANK)):
            row[column + 1] = _BLANK
        row.pop(column, None)

    def _escape(self, piece: str) -> None:  # noqa: C901, PLR0912  a table
        kind, number = piece[-1], int(re.sub(r"\D", "", piece[2:]) or 0)
        row = self.rows[self.row]
        match kind:
            case "A" | "F":
                self.row = max(0, self.row - (number or 1))
            case "B" | "E":
                self.row = min(23, self.row + (number or 1))
            case "C":
                self.column += number or 1
            case "D":
                self.column = max(0, self.column - (number or 1))
            case "G":
                self.column = (number or 1) - 1
            case "K":
                first, end = [(self.column, 999), (0, self.column + 1), (0, 999)][number]
                for column in range(first, min(end, max(row, default=0) + 1)):
                    self._break(row, column)
            case "J" if number == 0:
                del self.rows[self.row + 1 :]
                self._escape("\x1b[K")
            case "d":
                self.row = (number or 1) - 1
            case "P" | "X" | "@":
                self._change_cells(kind, number or 1)
            case "L":
                self.rows[self.row : self.row] = [{} for _ in range(number or 1)]
            case "M":
                del self.rows[self.row : self.row + (number or 1)]
            case "7":
                self.saved = (self.row, self.column)
            case "8":
                self.row, self.column = self.saved
            case _:
                pass
        if kind in "EFLM":
            self.column = 0

    def _change_cells(self, kind: str, count: int) -> None:
        row = self.rows[self.row]
        edges = (self.column,) if kind == "@" else (self.column, self.column + count)
        for edge in edges:
            if row.get(edge) == "":
                self._break(row, edge)
                row[edge] = _BLANK
        shift = {"P": -count, "X": 0, "@": count}[kind]
        right = {column: row.pop(column) for column in [*row] if column >= self.column}
        row.update(
            {
                column + shift: character
                for column, character in right.items()
                if kind == "@" or column >= self.column + count
            }
        )

    def read(self) -> list[str]:
        lines = [
            "".join(row.get(column, _BLANK) for column in range(max(row, default=-1) + 1))
            for row in self.rows
        ]
        return [line.rstrip() for line in lines]


def expand(text: str) -> list[str]:
    """Return the lines with tabs as the spaces that they take."""
    screen = Screen()
    screen.feed(text)
    return screen.read()


PIECES = [
    *("a", "word", "two words", "12%", "█▊░", "é", "中文", "進", "Ω", "x" * 30),
    *("\n", "\n", "\r\n", "\r", "\r", "\b", "\b\b\b", "\t"),
    *("\x1b[K", "\x1b[1K", "\x1b[2K", "\x1b[J", "\x1b[A", "\x1b[2A", "\x1b[B", "\x1b[1E"),
    *(
        "\x1b[P",
        "\x1b[4P",
        "\x1b[@",
        "\x1b[3@",
        "\x1b[X",
        "\x1b[5X",
        "\x1b[3d",
        "\x1b[L",
        "\x1b[2M",
    ),
    *("\x1b[F", "\x1b[3C", "\x1b[D", "\x1b[4D", "\x1b[G", "\x1b[7G", "\x1b7", "\x1b8"),
    *("\x1b[1;32m", "\x1b[0m", "\x1b[?25l", "\x1b]0;title\x07", "\x07", "\0"),
]


@pytest.mark.parametrize("seed", range(count_examples(150, 20_000)))
def test_any_output_is_what_a_terminal_shows(seed: int) -> None:
    draw = random.Random(seed)
    # Fewer rows than a terminal has: what scrolls off the screen can no longer change.
    pieces = draw.choices(PIECES, k=draw.randrange(1, 60))
    while sum("\n" in piece or piece[-1] in "BE" for piece in pieces) > 20:
        pieces.pop()
    output = "".join(pieces)
    screen = Screen()
    screen.feed(output)
    shown = show(output.encode())
    assert expand(shown.decode()) == screen.read()
    assert not set(shown.decode()) & set("\r\b\x1b\x07\0")
    sizes = [draw.randrange(1, 8) for _ in range(7)]
    assert show(output.encode(), sizes) == shown
    assert show(output.encode(), [1]) == shown


@pytest.mark.parametrize("seed", range(count_examples(20, 2_000)))
def test_output_that_scrolls_and_hostile_bytes_do_not_depend_on_the_chunks(seed: int) -> None:
    draw = random.Random(seed)
    pieces = [
        *PIECES,
        "\x1b[2J",
        "\x1b[H",
        "\x1b[99;99H",
        "\x1b[999C",
        "e\u0301",
        "\u0301",
        "\n" * 90,
    ]
    pieces += ["\n" * 90, "y" * 9_000, "\x1b", "\x1b]", "\x1b[", "\x1b[" + "1" * 70]
    output = "".join(draw.choices(pieces, k=80)).encode()
    output += bytes(draw.randrange(256) for _ in range(200))
    shown = show(output)
    for sizes in ([1], [draw.randrange(1, 5_000) for _ in range(9)]):
        assert show(output, sizes) == shown


@pytest.mark.parametrize(
    "text",
    [
        "plain\n\n  indented\tand tabbed \t\n" * 300,
        "trailing space \n\u00a0\u200b\u3000e\u0301 👩‍👩‍👧 中文，\t表\n",
        "no end of line",
        "\n\n\n",
        "long " * 20_000 + "\n" + "x" * 8_192 + "\n" + "短" * 9_000,
        "",
    ],
)
def test_text_without_progress_stays_byte_for_byte(text: str) -> None:
    raw = text.encode() + b"\xff\xfe\x80 not UTF-8 \xe4\xb8"
    for sizes in ([len(raw)], [1], [7, 4_096]):
        assert show(raw, sizes) == raw
    crlf = raw.replace(b"\n", b"\r\n")
    assert show(crlf, [3]) == raw


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        (b"".join(b"\rprogress %d%%" % n for n in range(300)) + b"\n", b"progress 299%\n"),
        (b"abc\b\b\bxyz", b"xyz"),
        (b"100%\r 99%\r  9%\n", b"  9%\n"),
        (b"long line\rab", b"abng line"),
        (b"long line\r\x1b[Kab", b"ab"),
        # npm and other spinners; docker and rich redraw several lines; cargo clears its bar.
        (b"\x1b[1G\x1b[0K|\x1b[1G\x1b[0K/\x1b[1G\x1b[0Kadded 3 packages\n", b"added 3 packages\n"),
        (b"a: 1\nb: 1\n" + b"\x1b[2A\x1b[2Ka: 2\r\n\x1b[2Kb: 2\r\n" * 50, b"a: 2\nb: 2\n"),
        (b"Building 1\r\x1b[J   Compiling\nBuilding 2\r\x1b[J  Done\n", b"   Compiling\n  Done\n"),
        ("x: 10%|█   |\rx: 99%|███▉|\n".encode(), "x: 99%|███▉|\n".encode()),
        # A terminal keeps in its scrollback what an erased screen showed.
        (b"\x1b[2J\x1b[Hfirst\n\x1b[H\x1b[2Jsecond\n", b"first\nsecond\n"),
        # A spinner that inserts, a counter that deletes, a clock that erases.
        (b"\r\x1b[2@| \r\x1b[2P" * 9 + b"done\r\x1b[2@- ", b"- done"),
        (b"12345678 left\r\x1b[5P", b"678 left"),
        (b"a\tb\tc\r\x1b[P\x1b[3Cx", b"   x   b       c"),
        (b"10:00:00 ok\r\x1b[8X", b"         ok".rstrip()),
        (b"one\ntwo\n\x1b[2A\x1b[Lzero", b"zero\none\ntwo"),
        (b"one\ntwo\nthree\x1b[2d\x1b[M", b"one\nthree"),
        ("中文\x1b[D\t.".encode(), "中文    .".encode()),
        (b"x" * 200 + b"\r\x1b[3@", b"   " + b"x" * 197),
        (b"col\x1b[999Cend\x1b[1Gx", b"xol" + b" " * 196 + b"end"),
    ],
)  # fmt: skip
def test_programs_that_draw(output: bytes, shown: bytes) -> None:
    assert show(output).rstrip() == shown.rstrip() and show(output, [1]) == show(output)


@pytest.mark.parametrize(
    "piece",
    [
        b"a line of output\n",
        b"x",
        b"crlf\r\n",
        b"\x1b[1mbold\x1b[0m\n",
        b"\rprogress 12% [==>   ]",
        "\r下载 █▊ 中".encode(),
        b"\by",
        b"\x1b[1A\x1b[2Kdownload\n",
        b"\x1b",
        b"\x1b]",
        b"\x1b[999C\x1b[99Hx\x1b[2J",
        b"\x1b[1",
        b"\rx\x1b[@",
        b"\rx\x1b[P\x1b[X\t",
        b"\x1b[L\x1b[24Lx",
        b"\x1b[A\x1b[Mx\n",
    ],
)
def test_time_grows_with_the_length_only(piece: bytes) -> None:
    def measure(size: int) -> float:
        output = b"x\t" * 2_000 + piece * (size // len(piece))
        times: list[float] = []
        for _ in range(3):
            began = time.process_time()
            show(output, [1 << 14])
            times.append(time.process_time() - began)
        return min(times)

    size = count_examples(20_000, 1_000_000)
    assert measure(4 * size) < 12 * measure(size) + 0.05


async def test_a_progress_bar_is_one_line_for_the_model(call: Call) -> None:
    result = await call(
        "bash",
        command="for n in $(seq 300); do printf '\\rprogress %d%%' $n; done; echo; echo done",
    )
    assert result.text == "progress 300%\ndone"


async def test_a_long_output_is_kept_as_a_terminal_shows_it(ctx: Run, call: Call) -> None:
    bar = r"printf '10%%\r\033[K20%%\r\033[1m100%%\033[0m\n'"
    result = await call("bash", command=f"{bar}; seq 1 100000; {bar}")
    with open(result.spill) as file:
        lines = file.read().split("\n")
    assert lines == ["100%", *map(str, range(1, 100_001)), "100%", ""]
    assert result.text.startswith("100%\n1\n") and result.text.endswith("99999\n100000\n100%")
