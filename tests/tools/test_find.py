"""The tools glob and grep: results and time limits."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.tools.conftest import Call, Run

from mudroom._adapters.tools import glob, grep
from mudroom._adapters.tools._ripgrep import InvalidPattern, find_ripgrep
from mudroom._adapters.tools.grep import parse, search
from mudroom._adapters.workspaces.shared import SharedWorkspace
from mudroom._core.ports import FileInfo
from mudroom.errors import WorkspaceError

from ..waiting import wait_until

RG = find_ripgrep("/nowhere")
Change = Callable[[Iterator[FileInfo], list[str] | None], Iterator[FileInfo]]


@pytest.fixture
def slow_rg(tmp_path: Path) -> str:
    """A program like rg that reports its first file and then never ends."""
    program = tmp_path / "slow_rg"
    script = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
printf '%s\\0' "$2"
touch "$0.started"
exec sleep 600
"""
    program.write_text(script)
    program.chmod(0o755)
    return str(program)


@pytest.fixture
def tree(ctx: Run) -> Run:
    files = {
        "main.py": (
            "import os\n\ndef main():\n    return os.getcwd()\n\n\ndef other():\n    "
            "return 'Main'\n"
        ),
        "src/a.py": "class A:\n    def main(self): ...\n",
        "src/deep/b.ts": "export function main() {\r\n  return 1\r\n}\r\n",
        "doc/readme.md": "# Main\n\nmain, Main, MAIN\nümläut main\n",
        "build/out.py": "def main(): pass\n",
        ".gitignore": "build/\n*.tmp.py\n",
        "src/x.tmp.py": "main\n",
        ".hidden/main.cfg": "main = 1",
    }
    (ctx.root / ".git").mkdir()
    (ctx.root / ".git" / "config").write_text("main\n")
    for path, text in files.items():
        ctx.workspace.write(path, text.encode())
    ctx.workspace.write("image.png", b"\x89PNG\r\n\x1a\n\0main\n")
    ctx.workspace.write("latin.txt", b"caf\xe9 main\n")
    ctx.workspace.write("wide.txt", "wide main\nother\n".encode("utf-16"))
    return ctx


async def test_a_folder_below_the_repository_has_the_ignore_rules_of_its_parents(
    tree: Run,
) -> None:
    below = SharedWorkspace(str(tree.root / "src"))
    everything = glob.list_matches(below, glob.parse({"pattern": "**/*"}))
    assert everything.text.splitlines() == [
        *sorted(["a.py", "deep/b.ts"], key=lambda path: -os.stat(f"{below.root}/{path}").st_mtime),
        "(not searched: 1 ignored file (x.tmp.py))",
    ]
    searched = await search(below, parse({"pattern": "main"}), rg=RG)
    assert searched.text.splitlines() == [
        "a.py",
        "deep/b.ts",
        "(not searched: 1 ignored file (x.tmp.py))",
    ]
    ignored = SharedWorkspace(str(tree.root / "build"))
    assert (await search(ignored, parse({"pattern": "main"}), rg=RG)).text == "out.py"


async def test_glob_lists_the_newest_hundred_first_and_counts_all(tree: Run, call: Call) -> None:
    os.utime(tree.root / "main.py", (1, 1))
    os.utime(tree.root / "src/a.py", (2_000_000_000, 2_000_000_000))
    result = await call("glob", pattern="**/*.py")
    assert result.text.splitlines()[:2] == ["src/a.py", "main.py"]
    assert (await call("glob", pattern="a*.py", path="src")).text == "src/a.py"
    assert (await call("glob", pattern=f"{tree.root}/src/**/*.ts")).text == "src/deep/b.ts"
    for n in range(150):
        (tree.root / f"{n:03}.many").write_text("")
    rows = (await call("glob", pattern="*.many")).text.splitlines()
    assert len(rows) == 101
    assert rows[-1].startswith("(100 newest of 150 files; use a narrower pattern or a path")


async def test_glob_without_matches_suggests_a_deeper_pattern(tree: Run, call: Call) -> None:
    assert (
        await call("glob", pattern="*.ts")
    ).text == "(no files match *.ts; **/*.ts would match 1)"
    assert (await call("glob", pattern="*.zig", path="src")).text == "(no files match *.zig in src)"


async def test_glob_of_a_folder_by_its_name_says_how_to_list_it(ctx: Run, call: Call) -> None:
    for name in ("src", "[id]"):
        (ctx.root / name).mkdir()
        (ctx.root / name / "a.py").write_text("")
    for pattern in ("src", "src/", "[id]", r"\[id\]"):
        folder = pattern.replace("\\", "")
        text = (await call("glob", pattern=pattern)).text
        assert f"{folder} is a folder: list it with path, without a pattern" in text


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("one\ntwo", True),
        (r"one\ntwo", True),
        (r"one$\ntwo", True),
        (r"one\n+two", True),
        (r"two\n{2}four", True),
        ("(one\n){1}two", True),
        (r"o[^\n]+\nt", True),
        (r"[[:alpha:]]\ntwo", True),
        (r"\[x\]\nend", True),
        (r"one\\ntwo", False),
        (r"one\ntwoo", False),
        (r"two\nfour", False),
    ],
)
async def test_a_line_feed_in_a_pattern_is_the_end_of_a_line(
    ctx: Run, call: Call, end: str, pattern: str, found: bool
) -> None:
    text = "one\ntwo\n\nfour\n[x]\nend\n"
    (ctx.root / "f.txt").write_bytes(text.replace("\n", end).encode())
    result = await call("grep", pattern=pattern)
    assert result.text == ("f.txt" if found else "(no matches)")


async def test_glob_without_a_pattern_lists_the_folder(tree: Run, call: Call) -> None:
    names = [".gitignore", ".hidden/ (1 file)", "doc/ (1 file)", "image.png", "latin.txt"]
    names += ["main.py", "src/ (2 files)", "wide.txt"]
    names += ["(not searched: 2 ignored files (build/, src/x.tmp.py))"]
    assert (await call("glob")).text.splitlines() == names
    note = "(not searched: 1 ignored file (src/x.tmp.py))"
    listed = await call("LS", path=str(tree.root / "src"))
    assert listed.text == f"a.py\ndeep/ (1 file)\n{note}"
    partly = await call("list_directory", dir_path="src", ignore=["deep"])
    assert partly.text == f"a.py\n{note}"
    (tree.root / "none").mkdir()
    assert (await call("glob", path="none")).text == "(no files in none)"
    assert (await call("LS", path="missing")).error


@pytest.mark.parametrize("pattern", ["../*", "**/../../*", "/etc/*", "/**"])
async def test_49_glob_does_not_leave_the_workspace(tree: Run, call: Call, pattern: str) -> None:
    os.symlink("/etc", tree.root / "etc")
    result = await call("glob", pattern=pattern)
    assert result.error
    assert "passwd" not in result.text


IGNORED = "2 ignored files (build/, src/x.tmp.py)"
IMAGE = "1 binary file (image.png)"
CONTENT = {"output_mode": "content"}
SEARCHES: list[tuple[str, dict[str, Any], list[str]]] = [
    (
        "main",
        {},
        [
            ".hidden/main.cfg",
            "doc/readme.md",
            "latin.txt",
            *("main.py", "src/a.py"),
            "src/deep/b.ts",
            "wide.txt",
        ],
    ),
    ("MAIN", {}, ["doc/readme.md"]),
    ("nowhere", {"path": "doc"}, ["(no matches in doc)"]),
    ("-main", {"path": "doc"}, ["(no matches in doc)"]),
    ("main", {"glob": "src/**/*.ts"}, ["src/deep/b.ts"]),
    ("main", {"glob": "*.{py,md}"}, ["doc/readme.md", "main.py", "src/a.py"]),
    ("other", {"glob": "!*.py"}, ["wide.txt"]),
    ("main", {"type": "py"}, ["main.py", "src/a.py"]),
    ("main", {"type": "ts"}, ["src/deep/b.ts"]),
    ("main", {"type": "cfg"}, [".hidden/main.cfg"]),
    ("main", {"path": "src"}, ["src/a.py", "src/deep/b.ts"]),
    ("main", {"path": "doc", "output_mode": "count"}, ["doc/readme.md:2"]),
    ("(?i)MAIN", {"path": "doc", "output_mode": "count"}, ["doc/readme.md:3"]),
    ("MAIN", {"path": "doc", "output_mode": "count", "-i": True}, ["doc/readme.md:3"]),
    ("^def", CONTENT, ["main.py:3:def main():", "main.py:7:def other():"]),
    ("wide", CONTENT, ["wide.txt:1:wide main"]),
    ("ü", CONTENT, ["doc/readme.md:4:ümläut main"]),
    ("café", {**CONTENT, "-n": False}, ["latin.txt:café main"]),
    (
        r"\bmain\b$",
        CONTENT,
        ["doc/readme.md:4:ümläut main", "latin.txt:1:café main", "wide.txt:1:wide main"],
    ),
    ("1$", CONTENT, [".hidden/main.cfg:1:main = 1", "src/deep/b.ts:2:  return 1"]),
    (
        r"def main\(\):\n    return",
        CONTENT,
        ["main.py:3:def main():", "main.py:4:    return os.getcwd()"],
    ),
    (
        "main.*?return",
        {**CONTENT, "multiline": True, "type": "ts"},
        ["src/deep/b.ts:1:export function main() {", "src/deep/b.ts:2:  return 1"],
    ),
    (
        r"\d+|[A-Z]\w+",
        {**CONTENT, "glob": "*.{cfg,py}"},
        [".hidden/main.cfg:1:main = 1", "main.py:8:    return 'Main'"],
    ),
    (
        "def other",
        {**CONTENT, "-B": 2, "-A": 1},
        ["main.py-5-", "main.py-6-", "main.py:7:def other():", "main.py-8-    return 'Main'"],
    ),
    (
        "^(def|import)",
        {**CONTENT, "-C": 1},
        [
            *("main.py:1:import os", "main.py-2-", "main.py:3:def main():"),
            *("main.py-4-    return os.getcwd()", "--", "main.py-6-", "main.py:7:def other():"),
            "main.py-8-    return 'Main'",
        ],
    ),
    (
        "function",
        {**CONTENT, "context": 20},
        [
            "src/deep/b.ts:1:export function main() {",
            "src/deep/b.ts-2-  return 1",
            "src/deep/b.ts-3-}",
        ],
    ),
]


@pytest.mark.parametrize(("pattern", "query", "expected"), SEARCHES, ids=str)
async def test_grep_modes(
    tree: Run, pattern: str, query: dict[str, Any], expected: list[str]
) -> None:
    result = await search(tree.workspace, parse({"pattern": pattern, **query}), rg=RG)
    assert [row for row in result.text.split("\n") if not row.startswith("(not ")] == expected


async def test_grep_says_what_it_did_not_search_or_show(tree: Run) -> None:
    async def run_grep(**query: Any) -> str:
        return (await search(tree.workspace, parse(query), rg=RG)).text

    whole = await run_grep(pattern="main")
    assert whole.endswith(f"\n(not searched: {IGNORED}, {IMAGE})")
    none = f"(in the files that were searched: no matches; not searched: {IGNORED}, {IMAGE})"
    assert await run_grep(pattern="nowhere") == none
    first = await run_grep(pattern="main", head_limit=1)
    assert first == (
        ".hidden/main.cfg\n(1 line shown, there are more; narrow the search or raise "
        f"head_limit; not searched: {IGNORED}, {IMAGE})"
    )


async def test_long_lines_and_long_answers_are_cut(ctx: Run) -> None:
    (ctx.root / "minified.js").write_text("needle" + "x" * 1_000_000 + "\nneedle\n")
    text = (
        await search(ctx.workspace, parse({"pattern": "needle", "output_mode": "content"}), rg=RG)
    ).text
    assert text.startswith("minified.js:1:needlexxx") and text.endswith(
        "x [line cut]\nminified.js:2:needle"
    )
    (ctx.root / "many").write_text("needle and hay\n" * 100_000)
    text = (
        await search(
            ctx.workspace,
            parse({"pattern": "hay", "output_mode": "content", "head_limit": 0}),
            rg=RG,
        )
    ).text
    assert len(text) < 50_000
    assert "there are more" in text


async def test_54_a_catastrophic_pattern_ends_soon(ctx: Run, call: Call) -> None:
    (ctx.root / "a").write_text("a" * 60 + "!\n")
    async with asyncio.timeout(60):
        assert (await call("grep", pattern="(a|a)*$")).text == "a"


async def test_a_search_ends_at_the_limit_with_its_matches_so_far_or_an_error(
    ctx: Run, slow_rg: str
) -> None:
    for name in "ab":
        (ctx.root / name).write_text("aaa\n")
    before = len(os.listdir("/proc/self/fd"))
    async with asyncio.timeout(60):
        result = await search(ctx.workspace, parse({"pattern": "a"}), rg=slow_rg, seconds=0.5)
        counts = parse({"pattern": "a", "output_mode": "count"})
        none = await search(ctx.workspace, counts, rg=slow_rg, seconds=0.5)
    assert result.text.splitlines()[0] == "a"
    note = "(stopped after 0.5 s: searched 0 of 2 files; use a simpler pattern, a path or a glob)"
    assert result.text.splitlines()[-1] == note
    assert none.error and "stopped after 0.5 s: searched 0 of 2 files" in none.text
    assert "no matches" not in none.text
    assert len(os.listdir("/proc/self/fd")) <= before + 1


async def test_cancelling_a_search_ends_its_process(ctx: Run, slow_rg: str) -> None:
    (ctx.root / "a").write_text("aaa\n")
    task = asyncio.create_task(search(ctx.workspace, parse({"pattern": "a"}), rg=slow_rg))
    await wait_until(Path(f"{slow_rg}.started").exists)
    task.cancel()
    await asyncio.wait([task], timeout=60)
    assert task.cancelled()


@pytest.mark.parametrize("pattern", [r"(?<=def )main", r"(a)\1"])
async def test_look_around_is_refused_with_another_way(tree: Run, call: Call, pattern: str) -> None:
    result = await call("grep", pattern=pattern)
    assert result.error
    assert "grep -P in bash" in result.text


async def test_without_ripgrep_the_result_names_another_way(
    tree: Run, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_nothing(root: str) -> str:
        return ""

    monkeypatch.setattr(grep, "find_ripgrep", find_nothing)
    result = await call("grep", pattern="main")
    assert result.error
    assert "Search with grep in bash" in result.text


async def test_an_invalid_pattern_is_an_error(tree: Run, call: Call) -> None:
    result = await call("grep", pattern="(unclosed")
    assert result.error
    assert result.text.startswith("pattern is not a regular expression:")
    with pytest.raises(InvalidPattern):
        await search(tree.workspace, parse({"pattern": "(unclosed"}), rg=RG)


async def test_many_files_are_searched_in_batches_in_order(ctx: Run) -> None:
    folder = "/".join(["f" * 200] * 5)
    (ctx.root / folder).mkdir(parents=True)
    for n in range(600):
        (ctx.root / folder / f"{n:05}").write_text("needle\n" if n % 30 == 0 else "hay\n")
    text = (await search(ctx.workspace, parse({"pattern": "needle", "head_limit": 0}), rg=RG)).text
    assert text.splitlines() == [f"{folder}/{n:05}" for n in range(0, 600, 30)]


class Listed(SharedWorkspace):
    """A workspace whose list of files passes through a function, as does each file it opens."""

    def __init__(self, root: Path, change: Change, on_open: Callable[[str], object] = str) -> None:
        super().__init__(str(root))
        self._change = change
        self._on_open = on_open

    def walk_entries(
        self, path: str = ".", *, ignored: bool = False, skipped: list[str] | None = None
    ) -> Iterator[FileInfo]:
        return self._change(super().walk_entries(path, ignored=ignored, skipped=skipped), skipped)

    def open(self, path: str) -> int:
        self._on_open(path)
        return super().open(path)


def delay_each(infos: Iterator[FileInfo], _: list[str] | None) -> Iterator[FileInfo]:
    """List each file after 10 ms."""
    for info in infos:
        time.sleep(0.01)
        yield info


@pytest.mark.parametrize("mode", ["content", "files_with_matches", "count"])
async def test_46_what_is_swapped_after_it_was_listed_is_not_searched(
    tmp_path: Path, mode: str
) -> None:
    root = tmp_path / "root"
    for folder, text in (("root/in", "needle within\n"), ("outside", "needle OUTSIDE\n")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "f").write_text(text)
    (root / "own").write_text("needle of its own\n")

    def swap(infos: Iterator[FileInfo], _: list[str] | None) -> Iterator[FileInfo]:
        yield from infos
        (root / "in").rename(root / "was")
        (root / "in").symlink_to("../outside")

    async def search_swapped() -> str:
        arguments = parse({"pattern": "needle", "output_mode": mode})
        return (await search(Listed(root, swap), arguments, rg=RG)).text

    open_before = len(os.listdir("/dev/fd"))
    text = await search_swapped()
    assert "own" in text and "OUTSIDE" not in text
    assert text.endswith("(not searched: 1 path that cannot be read (in/f))")
    (root / "in").unlink()
    (root / "was").rename(root / "in")
    (root / "own").unlink()
    assert await search_swapped() == "(nothing was searched: 1 path that cannot be read (in/f))"
    assert len(os.listdir("/dev/fd")) <= open_before + 1


async def test_a_search_that_is_ended_while_files_are_opened_leaves_none_open(
    tmp_path: Path,
) -> None:
    for n in range(20):
        (tmp_path / f"f{n}").write_text("needle\n")
    before = len(os.listdir("/dev/fd"))
    slow = Listed(tmp_path, lambda infos, _: infos, lambda _: time.sleep(0.02))
    await search(slow, parse({"pattern": "needle"}), rg=RG, seconds=0.1)
    await wait_until(lambda: len(os.listdir("/dev/fd")) <= before + 1)


async def test_a_list_that_takes_too_long_is_searched_as_far_as_it_is_known(tmp_path: Path) -> None:
    for n in range(50):
        (tmp_path / f"f{n:02}").write_text("needle\n")
    slow = Listed(tmp_path, delay_each)
    listed = glob.list_matches(slow, glob.parse({"pattern": "*"}), seconds=0.1)
    assert "f00" in listed.text and "f49" not in listed.text
    assert "(stopped after 0.1 s: searched " in listed.text
    assert "of more than " in listed.text and "use a path to search less)" in listed.text
    none = glob.list_matches(slow, glob.parse({"pattern": "*.py"}), seconds=0.1)
    assert none.error
    assert "nothing there matches" in none.text and "no files match" not in none.text
    found = await search(slow, parse({"pattern": "needle"}), rg=RG, seconds=0.4)
    assert not found.error
    assert "f00" in found.text and "f49" not in found.text
    assert "stopped after 0.4 s: searched " in found.text and " of more than " in found.text


async def test_what_cannot_be_listed_or_opened_is_named(tmp_path: Path) -> None:
    for name in ("locked/a.py", "b.py", "c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("needle\n")

    # Root ignores the modes of files, so the test cannot use them.
    def skip_locked(infos: Iterator[FileInfo], skipped: list[str] | None) -> Iterator[FileInfo]:
        for info in infos:
            if not info.path.startswith("locked/"):
                yield info
            elif skipped is not None:
                skipped.append("locked")

    def refuse_text(path: str) -> None:
        if path.endswith(".txt"):
            raise WorkspaceError(f"{path} may not be opened: permission denied")

    refusing = Listed(tmp_path, skip_locked, refuse_text)
    some = glob.list_matches(refusing, glob.parse({"pattern": "**/*.py"}))
    assert some.text == "b.py\n(not searched: 1 path that cannot be read (locked))"
    none = glob.list_matches(refusing, glob.parse({"pattern": "**/*.zig"}))
    assert none.text == (
        "(in the files that were searched: no files match **/*.zig; "
        "not searched: 1 path that cannot be read (locked))"
    )
    found = await search(refusing, parse({"pattern": "needle"}), rg=RG)
    assert found.text == "b.py\n(not searched: 2 paths that cannot be read (locked, c.txt))"
    nothing = await search(refusing, parse({"pattern": "nowhere"}), rg=RG)
    assert nothing.text.startswith("(in the files that were searched: no matches; not searched: 2 ")


async def test_grep_keeps_the_matches_of_a_search_program_that_fails(ctx: Run) -> None:
    (ctx.root / "a").write_text("aaa\n")
    (ctx.root / "b").write_text("aaa\n")
    program = ctx.root.parent / "failing_rg"
    program.write_text("#!/bin/sh\necho 'rg: out of memory' >&2\nexit 2\n")
    program.chmod(0o755)
    with pytest.raises(InvalidPattern):
        await search(ctx.workspace, parse({"pattern": "a"}), rg=str(program))
    program.write_text(
        "#!/bin/sh\nwhile [ $1 != -- ]; do shift; done\n"
        "printf '%s\\0' $2; echo 'rg: out of memory' >&2; exit 2\n"
    )
    some = await search(ctx.workspace, parse({"pattern": "a"}), rg=str(program))
    assert some.text == (
        "a\n(the search program failed, so not all was searched: rg: out of memory)"
    )
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    none = await search(ctx.workspace, parse({"pattern": "a"}), rg=str(program))
    assert none.error and "not all was searched: exit code -9" in none.text


SEARCH_IN_PARALLEL = """
import asyncio, pathlib, resource, sys
from tests.tools.conftest import Run
from mudroom._adapters.tools import grep

async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    ctx = Run(pathlib.Path(sys.argv[1]))
    for number in range(600):
        (ctx.root / f"{number:03}.txt").write_text("needle" if number == 599 else "hay")
    arguments = grep.parse({"pattern": "needle"})
    results = await asyncio.gather(*[grep.run(ctx, arguments) for _ in range(20)])
    print({result.text for result in results})

asyncio.run(main())
"""


async def test_parallel_searches_open_no_more_files_than_the_process_may(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        SEARCH_IN_PARALLEL,
        str(tmp_path),
        cwd=Path(__file__).parents[2],
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert out.decode().strip() == "{'599.txt'}"


async def test_names_that_are_not_utf8_work_in_every_file_tool(ctx: Run, call: Call) -> None:
    os.mkdir(os.fsencode(ctx.root) + b"/caf\xe9")
    for name in (b"caf\xe9/\xe9.py", rb"caf\xe9.py"):
        Path(os.fsdecode(os.fsencode(ctx.root) + b"/" + name)).write_text("needle\n")
    names = [r"caf\x5cxe9.py", r"caf\xe9/\xe9.py"]
    assert sorted((await call("glob", pattern="**/*.py")).text.splitlines()) == names
    assert sorted((await call("grep", pattern="needle")).text.splitlines()) == names
    for name in names:
        result = await call("read", file_path=name)
        assert result.text == "1\tneedle" and result.reads == (name,)
        await call("edit", file_path=name, old_string="needle", new_string="thread")
        assert (await call("read", file_path=name)).text == "1\tthread"
    inside = await call("grep", pattern="thread", path=r"caf\xe9")
    assert inside.text == names[1]
    assert (await call("glob", pattern="*.py", path=r"caf\xe9")).text == names[1]
    assert (await call("write", file_path=r"caf\xe9/new\xff", content="x")).changes == (
        r"caf\xe9/new\xff",
    )
    assert os.path.exists(os.fsencode(ctx.root) + b"/caf\xe9/new\xff")


def test_an_rg_in_the_workspace_is_not_run_but_that_of_the_package(
    ctx: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ctx.root / "rg").write_text("#!/bin/sh\ntouch ran\n")
    os.chmod(ctx.root / "rg", 0o755)
    monkeypatch.setenv("PATH", str(ctx.root))
    found = find_ripgrep(ctx.workspace.root)
    assert found == shutil.which("rg", path=sysconfig.get_path("scripts"))
