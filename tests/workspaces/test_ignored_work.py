"""Files that git ignores: work if a tool or the child's index names them, else kept and named."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.workspaces.git_projects import make_repository, read_files, write_files
from tests.workspaces.test_isolated_children import get_results, run_children

from mudroom import Isolation
from mudroom._adapters.models.scripted import call
from mudroom._adapters.workspaces.isolated import ignored_work
from mudroom._adapters.workspaces.isolated.kept_work import list_kept
from mudroom._cli.main import run


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files: dict[str, str | bytes] = {
        ".gitignore": "*.ign\ndist/\n",
        ".worktreeinclude": "copied.ign\n",
        "f1.txt": "old\n",
    }
    project = make_repository(tmp_path / "project", files)
    write_files(project, {"copied.ign": "the user's\n"})
    return project


async def test_files_that_tools_wrote_or_the_index_has_land(project: Path) -> None:
    steps = [
        [call("write", file_path="w [1].ign", content="written\n")],
        [call("bash", command="echo new > f1.txt; echo added > a.ign; git add -f a.ign")],
    ]
    report, model = await run_children(project, {"one": steps})
    (result,) = get_results(model)
    assert "ignored" not in result
    assert read_files(project) == {
        ".gitignore": b"*.ign\ndist/\n",
        ".worktreeinclude": b"copied.ign\n",
        "a.ign": b"added\n",
        "copied.ign": b"the user's\n",
        "f1.txt": b"new\n",
        "w [1].ign": b"written\n",
    }
    assert set(report.files_changed) == {"a.ign", "f1.txt", "w [1].ign"}


async def test_an_ignored_file_of_the_users_is_not_overwritten(project: Path) -> None:
    write_files(project, {"mine.ign": "mine\n"})
    steps = [[call("write", file_path="mine.ign", content="the child's\n")]]
    _, model = await run_children(project, {"one": steps}, isolation=Isolation(max_returns=0))
    assert "mine.ign (changed-meanwhile)" in get_results(model)[0]
    assert (project / "mine.ign").read_text() == "mine\n"


async def test_other_ignored_files_are_named_and_kept(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ignored_work, "MAX_KEPT_FILE_BYTES", 1_000)
    monkeypatch.setenv("MUDROOM_HOME", str(project.parent / "home"))
    monkeypatch.chdir(project)
    command = (
        "echo new > f1.txt; echo precious > new.ign; mkdir -p dist/sub; echo d > dist/sub/d.js; "
        "head -c 5000 /dev/zero > large.ign; ln -s f1.txt link.ign"
    )
    _, model = await run_children(project, {"one": [[call("bash", command=command)]]})
    (result,) = get_results(model)
    assert "[4 ignored files are not merged: large.ign, link.ign, new.ign, …]" in result
    assert sorted(path.name for path in project.glob("*.ign")) == ["copied.ign"]
    (kept,) = list_kept(str(project.parent / "home"))
    assert run(["workspaces", "show", kept.id]) == 0
    shown = capsys.readouterr().out
    assert "# 4 files that git ignores, 3 of them kept: " in shown
    assert f"mudroom workspaces apply --ignored {kept.id}\n" in shown
    assert "+precious" in shown
    assert run(["workspaces", "apply", "--ignored", kept.id]) == 0
    assert (project / "new.ign").read_text() == "precious\n"
    assert (project / "dist/sub/d.js").read_text() == "d\n"
    assert not (project / "large.ign").exists()
