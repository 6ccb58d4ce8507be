"""Only files with conflict marks have a copy "both, marked"; binary files and links have none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.workspaces.git_projects import make_repository

from mudroom._adapters.workspaces.isolated.workspaces import IsolatedWorkspaces

Write = Callable[[Path, str], object]


def replace_link(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(text)


KINDS: dict[str, tuple[Write, bool]] = {
    "text": (lambda path, text: path.write_text(f"{text}\n"), True),
    "binary": (lambda path, text: path.write_bytes(f"\0{text}\n".encode()), False),
    "utf-16": (lambda path, text: path.write_text(f"{text}\n", encoding="utf-16"), False),
    "link": (replace_link, False),
}


@pytest.mark.parametrize("is_added", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_only_texts_have_a_marked_copy(tmp_path: Path, kind: str, *, is_added: bool) -> None:
    write, has_marks = KINDS[kind]
    project = make_repository(tmp_path / "project", {"other.txt": "x\n"})
    if not is_added:
        write(project / "a", "base")
    workspaces = IsolatedWorkspaces(str(tmp_path / "store"), str(project), str(tmp_path / "home"))
    child = Path(workspaces.open("1.1.1", "", same_path=False).files.folder)
    write(child / "a", "child")
    write(project / "a", "user")
    (conflict,) = workspaces.plan_merge("", workspaces.store_work("1.1.1")).conflicts
    assert conflict.path == "a"
    assert (conflict.version == "both") == has_marks
    if has_marks:
        assert b"<<<<<<< the parent's version" in workspaces.store.read(conflict.text)
