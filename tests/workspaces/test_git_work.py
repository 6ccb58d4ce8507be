"""Work that is only in the git of a child: each kind is named, kept, and comes back as told.

S13: no byte that a child wrote is lost.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.engine.test_limits import answer_with_usage
from tests.long_form import count_examples
from tests.workspaces.git_projects import ENVIRONMENT, make_repository, run_git, write_files
from tests.workspaces.hostile_repositories import Markers

from mudroom import Agent, Budget, Reason, Report, Session, WorkspaceKind
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._adapters.workspaces.isolated import git_work
from mudroom._adapters.workspaces.isolated.kept_work import list_kept, remove_abandoned
from mudroom._adapters.workspaces.isolated.workspaces import IsolatedWorkspaces
from mudroom._cli.main import run
from mudroom._core.events import RunFinished, StoredEvent, WorkMerged, count_merges
from mudroom._core.runs import Work
from mudroom.testing.invariants import find_violations

SESSION = "0a1b2c3d-0000-4000-8000-000000000000"
RUN = "1.1.1"
ID = f"0a1b2c3d/{RUN}"
COMMIT = "echo precious > p.txt; git add p.txt; git commit -qm more"

KINDS = {
    "stash": ("echo precious >> a.txt; git stash -q", "stash: WIP on main"),
    "stash of a new file": ("echo precious > p.txt; git stash -qu", "stash: WIP on main"),
    "stash below another": (
        "echo precious >> a.txt; git stash -q; echo x >> a.txt; git stash -q",
        "stash: WIP on main",
    ),
    "packed stash": ("echo precious >> a.txt; git stash -q; git gc -q", "stash: WIP on main"),
    "dropped stash": ("echo precious >> a.txt; git stash -q; git stash drop -q", "no branch has"),
    "branch": (f"git checkout -qb topic; {COMMIT}; git checkout -q main", "branch topic: more"),
    "tag": (f"{COMMIT}; git tag t; git reset -q --hard HEAD~1", "tag t: more"),
    "tag with a message": (
        f"{COMMIT}; git tag -a -m told t; git reset -q --hard HEAD~1",
        "tag t: told",
    ),
    "notes": ("git notes add -m precious", "notes commits: Notes added"),
    "HEAD without a branch": (
        f"git checkout -q --detach; {COMMIT}; rm p.txt",
        "HEAD without a branch: more",
    ),
    "left HEAD": (f"git checkout -q --detach; {COMMIT}; git checkout -q main", "no branch has"),
    "reset": (f"{COMMIT}; git reset -q --hard HEAD~1", "no branch has: more"),
    "amended": (
        f"{COMMIT}; git rm -q p.txt; git commit -q --amend --allow-empty -m none",
        "no branch has: more",
    ),
    "worktree": (
        f"git worktree add -q wt -b side; cd wt; {COMMIT}; cd ..; git worktree remove wt",
        "branch side: more",
    ),
    "index of a worktree": (
        "git worktree add -q wt; cd wt; echo precious > p.txt; git add p.txt; rm p.txt; cd ..",
        "staged: worktrees/wt/p.txt",
    ),
    "staged": ("echo precious > a.txt; git add a.txt; echo y > a.txt", "staged: a.txt"),
    "staged, then removed": ("echo precious > p.txt; git add p.txt; rm p.txt", "staged: p.txt"),
    "merge": (
        "git checkout -qb topic; echo precious > a.txt; git commit -qam theirs; "
        "git checkout -q main; echo ours > a.txt; git commit -qam ours; "
        "git merge -q topic || echo ours > a.txt",
        "a merge that is not finished",
    ),
    "rebase": (
        "git checkout -qb topic; echo precious > a.txt; git commit -qam theirs; "
        "git checkout -q main; echo ours > a.txt; git commit -qam ours; "
        "git rebase -q topic || echo ours > a.txt",
        "a rebase that is not finished",
    ),
    "new repository": (
        f"git init -qb main new; cd new; {COMMIT}; git rm -q p.txt; git commit -qm less; cd ..",
        "new: branch main: less",
    ),
    "new repository in an ignored folder": (
        f"mkdir dist; cd dist; git init -qb main new; cd new; {COMMIT}; rm -r p.txt; cd ../..",
        "dist/new: branch main: more",
    ),
    "repository in a folder with files": (
        f"cd sub; git init -qb main; {COMMIT}; rm p.txt; cd ..",
        "sub: branch main: more",
    ),
    "submodule": (
        "git init -qb main .git/modules/m; mv .git/modules/m/.git/* .git/modules/m; "
        f"export GIT_DIR=$PWD/.git/modules/m GIT_WORK_TREE=$PWD/m; mkdir m; cd m; {COMMIT}; "
        "rm p.txt; cd ..; unset GIT_DIR GIT_WORK_TREE",
        ".git/modules: branch main: more",
    ),
}
"""Commands of a child, and what names its work. "precious" is in no file at the end."""


def make_project(folder: Path) -> Path:
    return make_repository(
        folder / "project",
        {"a.txt": "a\n", "b.txt": "b\n", "sub/c.txt": "c\n", ".gitignore": "dist/\n"},
    )


def open_workspaces(project: Path) -> IsolatedWorkspaces:
    home = project.parent / "home"
    return IsolatedWorkspaces(str(home / "isolated" / SESSION), str(project), str(home))


def work_in(workspaces: IsolatedWorkspaces, command: str, run_id: str = RUN) -> Path:
    """Make the workspace of a run and run a command there, as its model would."""
    folder = Path(workspaces.open(run_id, "", same_path=False).files.folder)
    run_shell(command, folder)
    return folder


def run_shell(command: str, folder: Path) -> str:
    result = subprocess.run(
        ["bash", "-euc", command], cwd=folder, env=ENVIRONMENT, capture_output=True, check=False
    )
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.decode("utf-8", "replace")


def store_and_remove(workspaces: IsolatedWorkspaces) -> Work:
    work = workspaces.store_work(RUN)
    workspaces.remove_if_stored(RUN)
    assert workspaces.find(RUN) is None
    return work


def recover(project: Path, capsys: pytest.CaptureFixture[str], name: str = ID) -> str:
    """Do what the documentation says; return all texts that come back."""
    folder = project.parent / "back"
    assert run(["workspaces", "git", name, str(folder)]) == 0
    commands = re.findall(r"^  (git fetch .*)$", capsys.readouterr().out, re.MULTILINE)
    texts = [path.read_text("utf-8", "replace") for path in folder.rglob("*") if path.is_file()]
    for command in commands:
        run_shell(command, project)
        commits = run_git(project, "rev-list", "--glob=refs/mudroom").split()
        # A commit without files is an error for grep.
        search = f"git grep -h -e '' {' '.join(commits)} || true"
        texts.append(run_shell(search, project))
    return "\n".join(texts)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = make_project(tmp_path)
    monkeypatch.setenv("MUDROOM_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(project)
    return project


# Half of the kinds beside a changed file, half of them without one; the long form has all pairs.
CASES = [
    (kind, changes)
    for number, kind in enumerate(KINDS)
    for place, changes in enumerate(["", "; echo changed >> b.txt"])
    if count_examples((number + place) % 2, 1)
]


@pytest.mark.parametrize(("kind", "changes"), CASES)
def test_s13_what_is_only_in_git_is_named_and_comes_back(
    kind: str, changes: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, name = KINDS[kind]
    workspaces = open_workspaces(project)
    work_in(workspaces, command + changes)
    work = store_and_remove(workspaces)
    del workspaces
    assert ("b.txt" in work.files) is bool(changes)
    assert work.git
    assert any(name in each for each in (*work.git.only, *work.git.commits)), work.git
    assert not work.git.unread and not work.git.folder
    assert "precious" in recover(project, capsys)
    assert run(["workspaces", "show", ID]) == 0
    assert name in capsys.readouterr().out


@pytest.mark.parametrize(
    "command",
    [
        "true",
        "echo x >> a.txt; git add -A; git status; git log -1; git diff HEAD",
        "git checkout -qb other; git branch third; git checkout -q main; git branch -D other",
        "echo x >> a.txt; git add a.txt; git reset -q",
        "git rm -q --cached a.txt",
    ],
)
def test_a_child_that_leaves_nothing_in_git_has_no_git_work(command: str, project: Path) -> None:
    workspaces = open_workspaces(project)
    work_in(workspaces, command)
    assert workspaces.store_work(RUN).git is None


def test_commits_whose_files_are_merged_are_told_apart(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(project, {"dirty.txt": "not committed\n"})
    workspaces = open_workspaces(project)
    work_in(workspaces, "echo x >> a.txt; git commit -qam 'Say why'; echo more > new.txt")
    assert (git := store_and_remove(workspaces).git)
    assert (git.only, git.commits) == ((), ("branch main: Say why",))
    recover(project, capsys)
    assert run_git(project, "log", "-1", "--format=%s", "refs/mudroom/1.1.1/heads/main") == (
        "Say why\n"
    )


def test_a_stash_of_the_parents_changes_is_named(project: Path) -> None:
    """The child takes the parent's change out of the files; it did not write these bytes."""
    write_files(project, {"a.txt": "precious\n"})
    workspaces = open_workspaces(project)
    work_in(workspaces, "git stash -q")
    work = store_and_remove(workspaces)
    assert work.git and "stash: WIP on main" in work.git.only[0]


@pytest.mark.parametrize("is_merged", [False, True])
def test_a_kill_at_the_end_keeps_it_once(project: Path, is_merged: bool) -> None:
    workspaces = open_workspaces(project)
    work_in(workspaces, KINDS["stash"][0])
    first = workspaces.store_work(RUN)
    if is_merged:
        workspaces.store.mark_merged(RUN)
    del workspaces
    home = str(project.parent / "home")
    assert remove_abandoned(home) == 1
    assert open_workspaces(project).find_stored(RUN) == first
    assert list_kept(home)[0].state == ("merged" if is_merged else "not merged")


def test_a_run_that_continues_in_a_new_folder_keeps_what_the_old_one_had(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (KINDS["stash"][0], "echo second >> b.txt; git stash -q", "true"):
        workspaces = open_workspaces(project)
        work_in(workspaces, command)
        work = store_and_remove(workspaces)
        del workspaces
    assert work.git and len(work.git.only) == 2
    text = recover(project, capsys)
    assert "precious" in text and "second" in text


def test_objects_that_cannot_be_kept_leave_the_workspace_where_the_line_says(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(git_work, "MAX_GIT_BYTES", 1 << 16)
    workspaces = open_workspaces(project)
    stash = "head -c 100000 /dev/urandom > p.txt; git stash -qu"
    work_in(workspaces, f"{stash}; git init -q new; cd new; {COMMIT}; echo gone > p.txt")
    git = store_and_remove(workspaces).git
    assert git and git.unread == (".git (its objects take more than 0 MiB)",)
    assert "stash" in run_git(Path(git.folder) / "project", "for-each-ref")
    assert git.only == ("new: branch master: more",)
    assert remove_abandoned(str(project.parent / "home")) == 0
    assert run(["workspaces", "show", ID]) == 0
    assert f"its folder stays at {git.folder}: .git" in capsys.readouterr().out
    assert "precious" in recover(project, capsys)
    assert run(["workspaces", "drop", ID]) == 0
    assert not Path(git.folder).exists()


@pytest.mark.parametrize(
    "damage",
    [
        "for each in .git/objects/??/*; do chmod +w $each; : > $each; done",
        "rm -f $(find .git/objects -type f | head -n 1)",
        "mv .git/objects .git/x; ln -s x .git/objects",
        "mv .git/objects ../x; mkdir .git/objects; ln -s $PWD/../x/?? .git/objects/",
        "git gc -q; chmod +w .git/objects/pack/*; for each in .git/objects/pack/*.pack; "
        "do echo x > $each; done",
        "rm -rf .git/objects/ab .git/refs; mkfifo .git/objects/ab .git/refs .git/logs/pipe",
    ],
)
def test_damaged_and_hostile_git_folders_keep_the_files(project: Path, damage: str) -> None:
    workspaces = open_workspaces(project)
    work_in(workspaces, f"echo precious >> a.txt; git stash -q; echo new > n.txt; {damage}")
    work = store_and_remove(workspaces)
    assert "n.txt" in work.files
    assert work.git
    assert work.git.folder or work.git.only


def test_links_in_a_git_folder_lead_to_nothing_of_others(project: Path, tmp_path: Path) -> None:
    secret = make_repository(tmp_path / "secret", {"key": "SECRET"})
    run_git(secret, "commit", "-q", "--allow-empty", "-m", "TOLD")
    workspaces = open_workspaces(project)
    commands = (
        f"ln -s {secret}/.git/objects/?? .git/objects/ || true",
        f"mkdir -p .git/objects/info; echo {secret}/.git/objects > .git/objects/info/alternates",
        f"mkdir -p .git/refs/heads; cp {secret}/.git/refs/heads/main .git/refs/heads/stolen",
        f"ln -s {secret}/.git/refs/heads/main .git/refs/heads/linked",
        f"mkdir deep; ln -s {secret}/.git deep/.git",
    )
    work_in(workspaces, "; ".join(commands))
    git = workspaces.store_work(RUN).git
    assert "TOLD" not in str(git)
    if git and git.tree:
        kept = workspaces.store.list_entries(git.tree).values()
        assert not any(b"SECRET" in workspaces.store.read(each.id) for each in kept)


def test_no_setting_of_a_childs_git_starts_a_program(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workspaces = open_workspaces(project)
    commands = (KINDS["stash"][0], KINDS["staged"][0], KINDS["new repository"][0])
    folder = work_in(workspaces, "; ".join(commands))
    markers = Markers(tmp_path / "markers")
    for git_folder in (folder / ".git", folder / "new/.git"):
        markers.poison(git_folder)
    store_and_remove(workspaces)
    del workspaces
    assert "precious" in recover(project, capsys)
    assert markers.read() == set()


def test_a_folder_without_a_repository_has_git_work_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = tmp_path / "project"
    write_files(project, {"a.txt": "a\n"})
    monkeypatch.setenv("MUDROOM_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(project)
    workspaces = open_workspaces(project)
    work_in(workspaces, f"git init -qb main; {COMMIT}; git rm -q p.txt; git commit -qm less")
    store_and_remove(workspaces)
    del workspaces
    run_git(project, "init", "-q")
    assert "precious" in recover(project, capsys)


def test_the_new_folder_must_not_exist(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workspaces = open_workspaces(project)
    work_in(workspaces, KINDS["staged"][0])
    work_in(workspaces, "true", "1.1.2")
    store_and_remove(workspaces)
    workspaces.store_work("1.1.2")
    workspaces.remove("1.1.2")
    del workspaces
    (project / "taken").mkdir()
    assert run(["workspaces", "git", ID, "taken"]) == 1
    assert "Name a folder that does not exist yet" in capsys.readouterr().err
    assert run(["workspaces", "git", "0a1b2c3d/1.1.2"]) == 1
    assert "nothing of the git of 0a1b2c3d/1.1.2 is kept" in capsys.readouterr().err
    assert run(["workspaces", "git", ID]) == 0
    assert (project / f"git-{RUN}/staged/a.txt").read_text() == "precious\n"


SOME = ("stash", "branch", "reset", "staged, then removed", "new repository")
"""Kinds of one child that ends in each way."""


async def run_child(
    project: Path, command: str, end: Reason
) -> tuple[Report, list[StoredEvent], str]:
    """Run a parent with one isolated child that ends for a reason.

    Returns the parent's report, the events, and what the parent's model read.
    """
    has_worked = asyncio.Event()

    async def answer(request: Request) -> Answer:
        if request.prompt == "PARENT":
            task = call("task", prompt="CHILD", agent="worker")
            return [task] if request.turn == 0 else "All reported."
        if request.turn == 0:
            wrote = 300 if end is Reason.BUDGET else 1
            return answer_with_usage("so far", call("bash", command=command), wrote=wrote)(request)
        has_worked.set()
        if end is Reason.CANCELLED:
            await asyncio.Event().wait()
        return "Done."

    model = ScriptedModel(answer)
    limits = Budget(output_tokens=200) if end is Reason.BUDGET else Budget()
    worker = Agent(
        name="worker", description="Works.", workspace=WorkspaceKind.ISOLATED, budget=limits
    )
    journal = MemoryJournal()
    home = str(project.parent / "home")
    options: dict[str, Any] = {"journal": journal, "environ": {}, "home": home, "agents": [worker]}
    async with Session(model=model, cwd=str(project), **options) as session:
        running = asyncio.create_task(session.run("PARENT"))
        if end is Reason.CANCELLED:
            await asyncio.wait_for(has_worked.wait(), 60)
            assert session.runs.cancel(RUN)
        report = await running
    events = [event async for event in journal.read()]
    ends = [each.report.reason for each in events if isinstance(each, RunFinished)]
    assert ends == [end, Reason.GOAL]
    request = next(each for each in model.requests if each.prompt == "PARENT" and each.results)
    return report, events, request.results[0].text


@pytest.mark.parametrize(
    ("end", "changes"),
    [
        (Reason.GOAL, "echo changed >> b.txt"),
        (Reason.CANCELLED, "echo changed >> b.txt"),
        (Reason.CANCELLED, "true"),
        (Reason.BUDGET, "true"),
    ],
)
async def test_s13_the_parent_reads_it_however_the_child_ends(
    end: Reason, changes: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    identity = "; ".join(
        f"export GIT_{who}_NAME=A GIT_{who}_EMAIL=a@localhost" for who in ("AUTHOR", "COMMITTER")
    )
    pieces = [KINDS[kind][0].replace("precious", f"precious-{kind[:5]}") for kind in SOME]
    report, events, text = await run_child(project, "; ".join([identity, *pieces, changes]), end)
    assert "[only in the child's git, so not merged: " in text
    for kind in SOME:
        assert KINDS[kind][1] in text
    assert ("changed" in (project / "b.txt").read_text()) is (changes != "true")
    name = re.search(r"`mudroom workspaces git (\S+)`", text)
    assert name
    assert report.merges and set(report.merges.only_in_git) == {RUN}
    back = recover(project, capsys, name[1])
    for kind in SOME:
        assert f"precious-{kind[:5]}" in back
    assert not find_violations(events)
    silent = [replace(e, only_in_git=()) if isinstance(e, WorkMerged) else e for e in events]
    assert [each.promise for each in find_violations(silent)] == ["S13"]


def test_counts_say_which_git_has_more_work() -> None:
    landed = WorkMerged(at=1, run="1", child="1.1.1", state="merged", files=("a",))
    stash = WorkMerged(at=2, run="1", child="1.1.2", state="merged", only_in_git=("stash: x",))
    dropped = WorkMerged(at=3, run="1", child="1.1.2", state="dropped", call="x")
    counts = count_merges([stash])
    assert counts and counts.describe() == "only in git: 1.1.2"
    counts = count_merges([landed, stash])
    assert counts and counts.describe() == "1 of 1 landed; only in git: 1.1.2"
    counts = count_merges([landed, stash, dropped])
    assert counts and counts.only_in_git == {"1.1.2": ("stash: x",)}


def test_long_lists_are_counted(project: Path) -> None:
    workspaces = open_workspaces(project)
    count = git_work.MAX_NAMES + 3
    tags = f"for n in $(seq {count}); do git tag t$n; done"
    work_in(workspaces, f"{COMMIT}; {tags}; git reset -q --hard HEAD~1")
    git = workspaces.store_work(RUN).git
    assert git and len(git.only) == git_work.MAX_NAMES + 1
    assert git.only[-1] == "3 more"
