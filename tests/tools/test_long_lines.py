"""Long lines in the results of grep: the match is always in what is shown."""

from __future__ import annotations

from itertools import product

import pytest
from tests.tools.conftest import Call, Run

FILLERS = ("x", "é", "中", "😀", "x é中😀", "needl ")
PLACES = (0, 1, 100, 166, 330, 350, 499, 500, 501, 2_000, 160_000)


async def show(call: Call, **more: object) -> list[str]:
    result = await call("grep", pattern="needle", output_mode="content", **more)
    return result.text.splitlines()


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16"])
async def test_the_match_is_shown_wherever_it_is(ctx: Run, call: Call, codec: str) -> None:
    lines = [
        f"{(filler * place)[:place]}needle{(filler * 1_000)[:1_000]}"
        for filler, place in product(FILLERS, PLACES)
    ]
    (ctx.root / "f").write_text("\n".join([*lines, "last needle"]), codec)
    *rows, last = await show(call, head_limit=0)
    assert last == f"f:{len(lines) + 1}:last needle"
    assert len(rows) == len(lines)
    for number, (row, line) in enumerate(zip(rows, lines, strict=True), start=1):
        assert row.startswith(f"f:{number}:") and "needle" in row and "\ufffd" not in row
        assert " [line cut" in row and len(row) < 600
        text = row.removeprefix(f"f:{number}:")
        shown = text.removeprefix("… ").partition(" [line cut")[0]
        assert shown in line
        assert text.startswith("… ") or line.startswith(shown)


async def test_other_matches_of_a_long_line_are_counted(ctx: Run, call: Call) -> None:
    far = "x" * 3_000 + "needle" + "y" * 3_000 + "needle" + "z" * 3_000 + "needle"
    (ctx.root / "f").write_text(f"{far}\nneedle {far}\n")
    first, second = await show(call)
    assert first.endswith("[line cut around byte 3,001; 2 more matches in it]")
    assert second.endswith("[line cut; 3 more matches in it]")


async def test_short_lines_and_context_are_whole(ctx: Run, call: Call) -> None:
    wide = "中" * 400
    (ctx.root / "f").write_text(f"{wide}needle\r\nnext [... 2 more matches]\r\n{'c' * 900}\r\n")
    rows = await show(call, **{"-A": 2})
    assert rows[:2] == [f"f:1:{wide}needle", "f-2-next [... 2 more matches]"]
    assert rows[2] == f"f-3-{'c' * 500} [line cut]"
    assert await show(call, **{"-n": False, "path": "f"}) == [f"f:{wide}needle"]


async def test_matches_of_several_lines_are_shown(ctx: Run, call: Call) -> None:
    (ctx.root / "f").write_text(f"{'x' * 900}needle\nend{'y' * 900}\n")
    result = await call("grep", pattern=r"needle\nend", output_mode="content")
    first, second = result.text.splitlines()
    assert "needle" in first and second.startswith("f:2:endyyy")
