"""Glob patterns: matches, and no pattern that takes long."""

from __future__ import annotations

import time

import pytest

from mudroom._adapters.tools._glob_patterns import compile_glob

from .conftest import Call, Run


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.py", ["a.py", ".py"], ["b/a.py", "a.pyc"]),
        ("**/*.py", ["a.py", "b/a.py", "c/b/a.py"], ["a.pyc", "a.py/x"]),
        ("src/**", ["src/a", "src/b/c"], ["src", "a/src/b"]),
        ("src/**/*.py", ["src/a.py", "src/b/c/a.py"], ["a.py", "lib/a.py"]),
        ("**/test_*/**/x", ["test_a/x", "q/test_a/b/c/x"], ["x", "test_a/y"]),
        ("a/*/c", ["a/b/c"], ["a/c", "a/b/b/c"]),
        ("*.{js,ts}", ["a.js", "a.ts"], ["a.jsx"]),
        ("{src,lib}/**/*.{py,pyi}", ["src/a.py", "lib/x/a.pyi"], ["a.py"]),
        ("[a-c]?.txt", ["ax.txt"], ["dx.txt", "a.txt"]),
        ("[!a].txt", ["b.txt"], ["a.txt"]),
        ("./a//b", ["a/b"], ["a"]),
        ("{x}", ["{x}"], ["x"]),
        ("a.b", ["a.b"], ["axb"]),
        ("**", ["a", "a/b"], []),
        ("app/[id]/page.tsx", ["app/[id]/page.tsx", "app/i/page.tsx"], ["app/x/page.tsx"]),
        ("app/[id]/*.{ts,tsx}", ["app/[id]/a.ts", "app/d/a.tsx"], ["app/[id]/a.js"]),
        ("[...slug]/[[opt]]/*", ["[...slug]/[[opt]]/a"], ["[...slug]/x/a"]),
        ("**/[id]/**", ["a/[id]/b/c", "i/c"], ["x/c"]),
        (r"\[id\]/*", ["[id]/a"], ["i/a", r"\[id\]x/a"]),
        (r"\{a,b\}", ["{a,b}"], ["a", "b"]),
        ("{a,b}/{c,d}/*.{js,ts}", ["{a,b}/c/x.js", "a/{c,d}/x.ts", "b/d/x.ts"], ["{a,b}/e/x.js"]),
        ("{x,y}.txt", ["{x,y}.txt", "x.txt", "y.txt"], ["{x}.txt"]),
        (r"a\*b?", ["a*bc"], ["axbc", r"a\*b"]),
        (r"\*.py", ["*.py", r"\*.py"], ["a.py"]),
        (r"a\ b", ["a b"], ["ab"]),
        (r"\!x\#", ["!x#"], ["x"]),
        ("!x", ["!x"], ["x"]),
        (r"caf\xe9/*", [r"caf\xe9/a"], ["cafxe9/a"]),
        (r"c\d/*", [r"c\d/a"], ["cd/a"]),
        ("new\nline*", ["new\nline", "new\nlines\n"], ["newline"]),
        ("-e", ["-e"], ["e"]),
    ],
)
def test_patterns(pattern: str, yes: list[str], no: list[str]) -> None:
    matches = compile_glob(pattern)
    assert [path for path in yes if not matches(path)] == []
    assert [path for path in no if matches(path)] == []


@pytest.mark.parametrize(
    "pattern", ["*a" * 60 + "b", "**/" * 60 + "b", "/".join(["**", "*a*a*a*a*"] * 20) + "/b"]
)
def test_no_pattern_takes_long(pattern: str) -> None:
    began = time.process_time()
    matches = compile_glob(pattern)
    assert not matches("/".join(["a" * 200] * 30))
    assert not matches("a" * 255)
    assert time.process_time() - began < 1


def test_too_many_alternatives_are_refused() -> None:
    with pytest.raises(ValueError, match="alternatives"):
        compile_glob("{a,b}" * 40)


async def test_line_breaks_around_a_pattern_are_dropped(ctx: Run, call: Call) -> None:
    (ctx.root / "src").mkdir()
    (ctx.root / "src" / "a.py").write_text("old\n")
    (ctx.root / "src" / "b.txt\n").write_text("old\n")
    for pattern in ("src/*.py\n", "\nsrc/*.py\r\n", "src/a.py\n", "**/*.py\t"):
        assert (await call("glob", pattern=pattern)).text == "src/a.py", pattern
        found = await call("grep", pattern="old", glob=pattern, output_mode="files_with_matches")
        assert found.text == "src/a.py", pattern
    assert (await call("glob", pattern="src/b.txt\n")).text.startswith("src/b.txt")
