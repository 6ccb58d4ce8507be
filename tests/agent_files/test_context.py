"""Context files.

The chain from the root down, imports with bounds, nothing twice, the farthest trimmed first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.long_form import count_examples

from mudroom._adapters.agent_files import ContextFiles, load_context_files

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "repo" / "a" / "b").mkdir(parents=True)

    def write(path: str, text: str) -> Path:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    return write


def load_chain(tmp_path: Path, at: str = "repo/a/b", **more: Any) -> ContextFiles:
    return load_context_files(str(tmp_path / at), user_home=str(tmp_path / "home"), **more)


def list_texts(context: ContextFiles) -> list[str]:
    return [file.text for file in context.files]


def test_files_come_from_the_home_then_from_the_root_down(write: Write, tmp_path: Path) -> None:
    for path in (
        "repo/a/b/AGENTS.md",
        "repo/AGENTS.md",
        "repo/a/CLAUDE.md",
        "home/.claude/CLAUDE.md",
        "home/.agents/AGENTS.md",
        "AGENTS.md",
    ):
        write(path, path)
    wanted = [
        "home/.agents/AGENTS.md",
        "home/.claude/CLAUDE.md",
        "repo/AGENTS.md",
        "repo/a/CLAUDE.md",
        "repo/a/b/AGENTS.md",
    ]
    context = load_chain(tmp_path)
    assert list_texts(context) == wanted
    assert [file.is_personal for file in context.files] == [True, True, False, False, False]
    assert "home/" not in context.to_prompt(include_personal=False).split("\n", 1)[1].replace(
        str(tmp_path), ""
    )
    assert context.to_prompt().index("repo/AGENTS.md") < context.to_prompt().index(
        "repo/a/b/AGENTS.md"
    )


def test_override_replaces_agents_and_gemini_is_a_last_resort(write: Write, tmp_path: Path) -> None:
    write("repo/AGENTS.override.md", "override")
    write("repo/AGENTS.md", "agents")
    write("repo/CLAUDE.md", "claude")
    write("repo/CLAUDE.local.md", "local")
    write("repo/GEMINI.md", "gemini")
    write("repo/a/GEMINI.md", "gemini alone")
    assert list_texts(load_chain(tmp_path)) == ["override", "claude", "local", "gemini alone"]


def test_duplicates_and_links_are_dropped(write: Write, tmp_path: Path) -> None:
    write("repo/AGENTS.md", "same")
    write("repo/CLAUDE.md", "@AGENTS.md")
    write("repo/a/AGENTS.md", "same\n")
    (tmp_path / "repo" / "a" / "b" / "CLAUDE.md").symlink_to(tmp_path / "repo" / "AGENTS.md")
    assert list_texts(load_chain(tmp_path)) == ["same"]


def test_imports_are_put_in_place_but_not_in_code(write: Write, tmp_path: Path) -> None:
    write("repo/docs/style.md", "STYLE")
    write(
        "repo/AGENTS.md",
        (
            "See @docs/style.md.\n`@docs/style.md`\n```\n@docs/style.md\n```\nmail "
            "a@docs/style.md, @someone, @org/package"
        ),
    )
    assert list_texts(load_chain(tmp_path)) == [
        (
            "See STYLE.\n`@docs/style.md`\n```\n@docs/style.md\n```\nmail "
            "a@docs/style.md, @someone, @org/package"
        )
    ]


def test_imports_are_relative_bounded_and_never_circular(write: Write, tmp_path: Path) -> None:
    for n in range(8):
        write(f"repo/d{'/d' * n}/f.md", f"{n} @d/f.md")
    write("repo/AGENTS.md", "@d/f.md")
    context = load_chain(tmp_path)
    assert list_texts(context) == ["0 1 2 3 @d/f.md"]
    assert [finding.text for finding in context.diagnostics] == [
        "@d/f.md is on import level 6; 5 are read"
    ]
    write("repo/AGENTS.md", "a @b.md")
    write("repo/b.md", "b @AGENTS.md @b.md")
    assert list_texts(load_chain(tmp_path)) == ["a b"]


@pytest.mark.parametrize(
    "name", ["/etc/hosts.md", "../../secret.md", "~/secret.md", "link.md", "linked/secret.md"]
)
def test_no_import_leaves_the_repository(write: Write, tmp_path: Path, name: str) -> None:
    write("secret.md", "SECRET")
    write("home/secret.md", "SECRET")
    (tmp_path / "repo" / "link.md").symlink_to(tmp_path / "secret.md")
    (tmp_path / "repo" / "linked").symlink_to(tmp_path)
    write("repo/AGENTS.md", f"Read @{name} now")
    context = load_chain(tmp_path)
    assert "SECRET" not in context.to_prompt()
    assert [finding.line for finding in context.diagnostics] == [1]


def test_a_context_file_that_is_a_link_out_of_the_repository_is_not_read(
    write: Write, tmp_path: Path
) -> None:
    write("secret.md", "SECRET")
    (tmp_path / "repo" / "AGENTS.md").symlink_to(tmp_path / "secret.md")
    context = load_chain(tmp_path)
    assert context.files == ()
    assert "leads out of" in context.diagnostics[0].text


def test_a_personal_file_imports_within_its_own_folder(write: Write, tmp_path: Path) -> None:
    write("home/.claude/me.md", "ME")
    write("home/.ssh/key.md", "SECRET")
    write("home/.claude/CLAUDE.md", "@me.md @~/.claude/me.md @~/.ssh/key.md @../.ssh/key.md")
    context = load_chain(tmp_path)
    assert list_texts(context) == ["ME  @~/.ssh/key.md @../.ssh/key.md"]


def test_the_outermost_files_are_cut_first_with_a_diagnostic(write: Write, tmp_path: Path) -> None:
    write("home/.agents/AGENTS.md", "far " * 100)
    write("repo/AGENTS.md", "mid " * 100)
    write("repo/a/AGENTS.md", "near " * 100)
    context = load_chain(tmp_path, max_bytes=700)
    assert [(len(file.text), file.omitted_bytes) for file in context.files] == [
        (0, 399),
        (201, 198),
        (499, 0),
    ]
    assert [finding.path.removeprefix(f"{tmp_path}/") for finding in context.diagnostics] == [
        "home/.agents/AGENTS.md",
        "repo/AGENTS.md",
    ]
    assert "198 bytes left out" in context.to_prompt()
    assert "399 of its 399 bytes are left out" in str(context.diagnostics[0])


@pytest.mark.parametrize("data", [b"\0\0", b"\xff\xfe\xfa", b"x" * 1_100_000])
def test_a_file_that_is_not_text_has_a_diagnostic(
    write: Write, tmp_path: Path, data: bytes
) -> None:
    write("repo/AGENTS.md", "").write_bytes(data)
    context = load_chain(tmp_path)
    assert context.to_prompt() == ""
    assert len(context.diagnostics) == 1


@settings(
    max_examples=count_examples(80, 200),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(text=st.text(alphabet="@ab./~`\n #-md", max_size=80) | st.text(max_size=80))
def test_no_import_in_any_text_leaves_the_repository(
    write: Write, tmp_path: Path, text: str
) -> None:
    write("b.md", "SECRET")
    write("home/b.md", "SECRET")
    write("repo/a.md", "A @b.md")
    write("repo/AGENTS.md", text)
    assert "SECRET" not in load_chain(tmp_path).to_prompt()


@pytest.mark.parametrize(
    "line",
    [
        "`" * 900_000 + "@a.md",
        "`a``b" * 150_000 + "@a.md",
        "@" * 900_000,
        "@a " * 300_000,
        "`@a.md` " * 100_000,
        "x@a.md" * 100_000,
    ],
)
def test_no_line_takes_long(write: Write, tmp_path: Path, line: str) -> None:
    write("repo/AGENTS.md", line)
    began = time.perf_counter()
    load_chain(tmp_path)
    assert time.perf_counter() - began < 30, "time grows with the square of the line"


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("` @a.md", "` A"),
        ("``@a.md`` @a.md", "``@a.md`` A"),
        ("``x`@a.md``", "``x`@a.md``"),
        ("`x` @a.md `y`", "`x` A `y`"),
    ],
)
def test_code_is_between_equal_runs_of_backticks(
    write: Write, tmp_path: Path, line: str, wanted: str
) -> None:
    write("repo/a.md", "A")
    write("repo/AGENTS.md", line)
    assert list_texts(load_chain(tmp_path)) == [wanted]


def test_without_files_the_prompt_is_empty(write: Write, tmp_path: Path) -> None:
    assert load_chain(tmp_path).to_prompt() == ""
