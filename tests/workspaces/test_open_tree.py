"""Trees of files that a sandbox shows for as long as a command needs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.workspaces.git_projects import hash_folder, make_repository, write_files

from mudroom import Session
from mudroom._adapters.workspaces.isolated.kept_work import remove_abandoned
from mudroom._adapters.workspaces.isolated.workspaces import IsolatedWorkspaces


@pytest.mark.parametrize("tier", ["full", "file", "off"])
async def test_a_command_sees_the_files_of_a_tree(tmp_path: Path, tier: str) -> None:
    project = make_repository(tmp_path / "project", {"a.txt": "a\n"})
    home = tmp_path / "home"
    options: dict[str, Any] = {
        "environ": {},
        "home": str(home),
        "journal": "memory",
        "sandbox": tier,
    }
    async with Session(model="offline", cwd=str(project), **options) as session:
        workspaces = IsolatedWorkspaces(
            str(home / "isolated" / session.id), str(project), str(home)
        )
        write_files(project, {"a.txt": "changed\n", "b.txt": "new\n"})
        tree = workspaces.store.store_source().tree
        write_files(project, {"a.txt": "later\n"})
        before = hash_folder(project)
        trees = session._require_open().resources.services.environments.shared.trees
        assert trees
        output: list[bytes] = []
        async with trees.open_tree(tree) as sandbox:
            result = await sandbox.run(
                "pwd; cat a.txt b.txt; echo x > a.txt; echo y > c.txt; git status --short",
                timeout=60,
                sink=output.append,
            )
        assert result.code == 0
        folder, *lines = b"".join(output).decode().splitlines()
        assert (folder == str(project)) == (tier == "full")
        assert lines[:2] == ["changed", "new"]
        assert hash_folder(project) == before
        runs = home / "isolated" / session.id / "runs"
        assert list(runs.iterdir()) == []


def test_a_clean_up_removes_the_files_of_a_tree_without_storing_them(tmp_path: Path) -> None:
    project = make_repository(tmp_path / "project", {"a.txt": "a\n"})
    home = tmp_path / "home"
    workspaces = IsolatedWorkspaces(str(home / "isolated/s"), str(project), str(home))
    folder = workspaces.check_out(workspaces.store.store_source().tree, same_path=False)
    assert Path(folder.files.folder, "a.txt").exists()
    del workspaces  # a kill ends its lock, too
    assert remove_abandoned(str(home)) == 0
    assert list((home / "isolated/s/runs").iterdir()) == []
