"""`mudroom workspaces`: the work of isolated workspaces is listed, shown, merged and dropped."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from tests.workspaces.git_projects import make_repository, write_files

from mudroom._adapters.workspaces.isolated import workspaces as isolated_workspaces
from mudroom._adapters.workspaces.isolated.kept_work import list_kept, remove_abandoned
from mudroom._adapters.workspaces.isolated.workspaces import IsolatedWorkspaces
from mudroom._cli.main import run

SESSION = "0a1b2c3d-0000-4000-8000-000000000000"
ID = "0a1b2c3d/1.1.1"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = make_repository(tmp_path / "project", {"a.txt": "a\nb\nc\n", "old.txt": "old\n"})
    monkeypatch.setenv("MUDROOM_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(project)
    return project


def open_workspaces(project: Path) -> IsolatedWorkspaces:
    home = project.parent / "home"
    return IsolatedWorkspaces(str(home / "isolated" / SESSION), str(project), str(home))


def leave_work(project: Path, run_id: str, files: dict[str, str | bytes]) -> None:
    """Change files of an isolated workspace as a process that is killed."""
    workspaces = open_workspaces(project)
    folder = workspaces.open(run_id, "", same_path=False)
    write_files(Path(folder.files.folder), files)
    del workspaces  # a kill ends its lock, too


@pytest.mark.parametrize("command", [["workspaces"], ["workspaces", "overlap"]])
def test_a_state_folder_that_is_a_file_is_an_error(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home = tmp_path / "home"
    home.touch()
    monkeypatch.setenv("MUDROOM_HOME", str(home))
    assert run(command) != 0
    shown = capsys.readouterr()
    assert f"cannot be listed: Not a directory ({home}/isolated)." in shown.err
    assert "set MUDROOM_HOME to another folder" in shown.err
    assert shown.out == ""
    run(["doctor"])
    assert "FAIL  isolated workspaces: " in capsys.readouterr().out


def test_work_of_a_killed_process_is_listed_shown_and_merged(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["workspaces"]) == 0
    assert "No run has had an isolated workspace here." in capsys.readouterr().out
    leave_work(project, "1.1.1", {"a.txt": "a\nB\nc\n", "new/n.txt": "n\n"})
    assert run(["workspaces"]) == 0
    line, hint = capsys.readouterr().out.splitlines()
    assert line == f"{ID}  not merged  a.txt, new/n.txt"
    assert "apply ID" in hint
    assert list((project.parent / "home/isolated" / SESSION / "runs").iterdir()) == []
    assert run(["workspaces", "show", ID]) == 0
    assert "-b\n+B\n" in capsys.readouterr().out
    assert (project / "a.txt").read_text() == "a\nb\nc\n"
    assert run(["workspaces", "apply", ID]) == 0
    assert f"Merged {ID} into {project}." in capsys.readouterr().out
    assert (project / "a.txt").read_text() == "a\nB\nc\n"
    assert (project / "new/n.txt").read_text() == "n\n"
    assert run(["workspaces", "list", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["id"], listed["state"], listed["run"]) == (ID, "merged", "1.1.1")
    assert run(["workspaces", "drop", ID]) == 0
    assert list_kept(str(project.parent / "home")) == []


def test_work_that_conflicts_changes_nothing(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_work(project, "1.1.1", {"a.txt": "a\nchild\nc\n", "n.txt": "n\n"})
    write_files(project, {"a.txt": "a\nuser\nc\n"})
    assert run(["workspaces", "apply", ID]) == 1
    assert "a.txt (both-modified)" in capsys.readouterr().out
    assert (project / "a.txt").read_text() == "a\nuser\nc\n"
    assert not (project / "n.txt").exists()


def test_conflicts_that_are_not_listed_are_counted(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_work(project, "1.1.1", {f"{number:02}.txt": "child\n" for number in range(23)})
    write_files(project, {f"{number:02}.txt": "user\n" for number in range(23)})
    assert run(["workspaces", "apply", ID]) == 1
    assert "  19.txt (both-added)\n  and 3 more\n" in capsys.readouterr().out


def test_no_file_is_written_while_another_merge_writes(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_work(project, "1.1.1", {"a.txt": "child\n"})
    monkeypatch.setattr(isolated_workspaces, "LOCK_SECONDS", 0.05)
    with open_workspaces(project).lock_files(""):
        assert run(["workspaces", "apply", ID]) == 1
    assert f"another program has locked {project}" in capsys.readouterr().err
    assert (project / "a.txt").read_text() == "a\nb\nc\n"
    assert run(["workspaces", "apply", ID]) == 0
    assert (project / "a.txt").read_text() == "child\n"


def test_an_ignored_file_of_the_user_is_not_overwritten(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(project, {".gitignore": "secret.txt\n", "secret.txt": "of the user\n"})
    leave_work(project, "1.1.1", {".gitignore": "", "secret.txt": "child\n", "a.txt": "child\n"})
    assert run(["workspaces", "apply", ID]) == 1
    assert "secret.txt (changed-meanwhile)" in capsys.readouterr().out
    assert (project / "secret.txt").read_text() == "of the user\n"
    assert (project / "a.txt").read_text() == "a\nb\nc\n"
    assert run(["workspaces", "list"]) == 0
    assert f"{ID}  not merged" in capsys.readouterr().out


def test_work_of_next_runs_is_kept_and_listed_after_the_first(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_ids = ["1.3.2", "1.3.2~2", "1.3.2~10", "1.4.1", "2.0.alice~1"]
    for run_id in reversed(run_ids):
        leave_work(project, run_id, {"new.txt": f"{run_id}\n"})
    assert run(["workspaces", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [work["run"] for work in listed] == run_ids
    assert run(["workspaces", "apply", "0a1b2c3d/1.3.2~2"]) == 0
    assert (project / "new.txt").read_text() == "1.3.2~2\n"
    capsys.readouterr()
    assert run(["workspaces", "list", "--json"]) == 0
    states = {work["run"]: work["state"] for work in json.loads(capsys.readouterr().out)}
    assert [run_id for run_id in run_ids if states[run_id] == "merged"] == ["1.3.2~2"]
    assert run(["workspaces", "drop", "0a1b2c3d/1.3.2~2"]) == 0
    capsys.readouterr()
    assert run(["workspaces", "list", "--json"]) == 0
    assert "1.3.2~2" not in [work["run"] for work in json.loads(capsys.readouterr().out)]


def test_an_unknown_id_names_the_nearest(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leave_work(project, "1.1.1", {"a.txt": "x"})
    assert run(["workspaces", "show", "0a1b2c3d/1.1.2"]) == 2
    assert ID in capsys.readouterr().err


def test_a_clean_up_leaves_workspaces_in_use(project: Path) -> None:
    workspaces = open_workspaces(project)
    folder = workspaces.open("1.1.1", "", same_path=False)
    home = str(project.parent / "home")
    assert remove_abandoned(home) == 0
    (kept,) = list_kept(home)
    assert kept.state == "working"
    assert Path(folder.files.folder, "a.txt").exists()
    del workspaces
    assert remove_abandoned(home) == 1


def test_a_folder_that_was_not_made_completely_is_removed(project: Path) -> None:
    leave_work(project, "1.1.1", {"a.txt": "x"})
    runs = project.parent / "home/isolated" / SESSION / "runs"
    shutil.copytree(runs / "1.1.1", runs / "1.1.2")
    (runs / "1.1.2/workspace.json").unlink()
    home = str(project.parent / "home")
    assert remove_abandoned(home) == 1
    assert list(runs.iterdir()) == []
    assert [each.run_id for each in list_kept(home)] == ["1.1.1"]


def test_a_workspace_that_a_clean_up_stored_is_made_again(project: Path) -> None:
    leave_work(project, "1.1.1", {"a.txt": "by the child\n"})
    remove_abandoned(str(project.parent / "home"))
    folder = open_workspaces(project).open("1.1.1", "", same_path=False)
    assert Path(folder.files.folder, "a.txt").read_text() == "by the child\n"


def test_doctor_shows_the_size_of_kept_work(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["doctor", "--json"])
    assert "isolated workspaces" not in capsys.readouterr().out
    leave_work(project, "1.1.1", {"n.txt": "n\n"})
    leave_work(project, "1.1.2", {"m.txt": "m\n"})
    run(["workspaces"])
    run(["workspaces", "apply", ID])
    capsys.readouterr()
    run(["doctor", "--json"])
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    result = checks["isolated workspaces"]["found"]
    folder = project.parent / "home/isolated"
    assert re.fullmatch(
        rf"\d+ kB of 1 session in {re.escape(str(folder))}; work of 2 runs, 1 not merged", result
    )


def test_files_that_several_runs_changed_are_listed(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["workspaces", "overlap"]) == 0
    assert "No file was changed by several runs" in capsys.readouterr().out
    leave_work(project, "1.1.1", {"a.txt": "a\nB\nc\n"})
    leave_work(project, "1.1.2", {"a.txt": "a\nbb\nc\n", "n.txt": "n\n"})
    assert run(["workspaces", "overlap"]) == 0
    shown = capsys.readouterr().out
    assert shown == "a.txt: 1.1.1 2, 1.1.2 2: conflict (both-modified)\n"
    assert run(["workspaces", "overlap", "--json"]) == 0
    (overlap,) = json.loads(capsys.readouterr().out)
    assert (overlap["path"], overlap["runs"]) == ("a.txt", ["1.1.1", "1.1.2"])
