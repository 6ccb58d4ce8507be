"""Many children that write at once, and a user who types meanwhile; the long form has figures."""

from __future__ import annotations

import os
import random
import statistics
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.reliability.conftest import Figure
from tests.workspaces.git_projects import hash_folder, make_repository, read_files
from tests.workspaces.test_isolated_children import get_results, run_children

from mudroom import Isolation
from mudroom._adapters.models.scripted import call
from mudroom._adapters.workspaces.isolated.kept_work import list_kept, open_kept
from mudroom._adapters.workspaces.isolated.workspaces import IsolatedWorkspaces
from mudroom._core.runs import Work
from mudroom._engine.changes.merged_files import ChangedMeanwhileError, write_merged_files
from mudroom._session.environments import IsolatedFiles

from .killed import LONG

CHILDREN = 50 if LONG else 6
FILES = 3_000 if LONG else 60
RACES = 1_000 if LONG else 25
LINES = [f"line {number}\n" for number in range(CHILDREN * 4)]


def change_line(number: int, text: str) -> str:
    lines = list(LINES)
    lines[number] = text
    return "".join(lines)


def describe_load() -> str:
    return f"load {os.getloadavg()[0]:.1f}"


async def write_at_once(project: Path, texts: Sequence[tuple[str, str]]) -> list[str]:
    """Run a child for each path and text, all at once. Return the results of their tasks."""
    children = {
        f"child {number}": [[call("write", file_path=path, content=text)]]
        for number, (path, text) in enumerate(texts)
    }
    _, model = await run_children(project, children, isolation=Isolation(max_returns=0))
    return get_results(model)


@pytest.mark.timeout(900)
async def test_children_that_write_different_files_all_land(tmp_path: Path, figure: Figure) -> None:
    files = {f"folder{number % 30}/{number}.py": f"x = {number}\n" * 200 for number in range(FILES)}
    project = make_repository(tmp_path / "project", dict(files))
    git = hash_folder(project / ".git")
    start = time.monotonic()
    paths = list(files)[:CHILDREN]
    results = await write_at_once(project, [(path, f"by {path}\n") for path in paths])
    seconds = time.monotonic() - start
    assert all("are in your files now" in result for result in results)
    expected = {**files, **{path: f"by {path}\n" for path in paths}}
    assert read_files(project) == {path: text.encode() for path, text in expected.items()}
    assert hash_folder(project / ".git") == git
    figure(
        f"{CHILDREN} children, {FILES:,} files, all merged", f"{seconds:.1f} s, {describe_load()}"
    )


def test_the_time_of_a_workspace_and_of_a_merge(tmp_path: Path, figure: Figure) -> None:
    files = {f"folder{number % 30}/{number}.py": f"x = {number}\n" * 200 for number in range(FILES)}
    project = make_repository(tmp_path / "project", dict(files))
    workspaces = IsolatedWorkspaces(str(tmp_path / "store"), str(project), str(tmp_path / "home"))
    isolation = IsolatedFiles(lambda: workspaces, "")
    opening, merging = list[float](), list[float]()
    runs = [f"1.{number}.1" for number in range(10 if LONG else 3)]
    for number, run_id in enumerate(runs):
        began = time.perf_counter()
        place = workspaces.open(run_id, "", same_path=False).files.folder
        opening.append(time.perf_counter() - began)
        for path in list(files)[number * 5 : number * 5 + 5]:
            Path(place, path).write_text(f"by {run_id}\n")
    for run_id in runs:
        work = workspaces.store_work(run_id)
        began = time.perf_counter()
        plan = isolation.plan_merge(work)
        write_merged_files(plan, isolation)
        merging.append(time.perf_counter() - began)
        assert len(plan.files) == 5
    for name, times in (("a workspace of", opening), ("a merge of 5 of", merging)):
        value = f"{statistics.median(times) * 1_000:.0f} ms (median of {len(times)})"
        figure(f"{name} {FILES:,} files", f"{value}, {describe_load()}")


@pytest.mark.timeout(900)
async def test_children_that_write_different_lines_of_a_file_all_land(
    tmp_path: Path, figure: Figure
) -> None:
    project = make_repository(tmp_path / "project", {"a.txt": "".join(LINES)})
    texts = [("a.txt", change_line(number * 4, f"by {number}\n")) for number in range(CHILDREN)]
    results = await write_at_once(project, texts)
    assert all("are in your files now" in result for result in results)
    expected = [f"by {n // 4}\n" if n % 4 == 0 else line for n, line in enumerate(LINES)]
    assert (project / "a.txt").read_text() == "".join(expected)
    figure("children that change one file in different places", f"{len(results)} of {len(texts)}")


@pytest.mark.timeout(900)
async def test_of_children_that_write_one_line_one_lands_and_the_others_are_kept(
    tmp_path: Path, figure: Figure
) -> None:
    project = make_repository(tmp_path / "project", {"a.txt": "".join(LINES)})
    texts = [("a.txt", change_line(7, f"by {number}\n")) for number in range(CHILDREN)]
    results = await write_at_once(project, texts)
    conflicts = [result for result in results if "a.txt (both-modified)" in result]
    assert len(conflicts) == CHILDREN - 1
    for conflict in conflicts:
        sides = [line.rstrip(",]") for line in conflict.split() if line.startswith("/")]
        read = {Path(side).read_text() for side in sides}
        assert len(read) == 4 and len(read & {text for _, text in texts}) == 2
    home = str(tmp_path / "home")
    kept: set[str] = set()
    for work in list_kept(home):
        store = open_kept(home, work.session).store
        record = store.find_kept(work.run_id)
        assert record
        entry = store.list_entries(record.work.tree)["a.txt"]
        kept.add(store.read(entry.id).decode())
    assert kept == {text for _, text in texts}
    figure("children that change one line", f"1 merged, {len(conflicts)} conflicts, all kept")


class TypingUser:
    """A user whose editor saves a file at a random moment of a merge."""

    def __init__(self, path: Path, draw: random.Random) -> None:
        self._path = path
        self._draw = draw
        self.saved = ""
        self._thread = threading.Thread(target=self._save)

    def start(self, number: int, *, replaces: bool) -> None:
        """Save after a random time. replaces: rename a new file over the old one."""
        self.saved = change_line(1, f"typed {number}\n")
        self._replaces = replaces
        self._seconds = self._draw.random() * 0.06
        self._thread.start()

    def _save(self) -> None:
        time.sleep(self._seconds)
        if not self._replaces:
            self._path.write_text(self.saved)
            return
        new = self._path.with_suffix(".swp")
        new.write_text(self.saved)
        new.rename(self._path)

    def wait(self) -> None:
        """Wait until the file is saved."""
        self._thread.join()


def merge(workspaces: IsolatedWorkspaces, work: Work, project: Path) -> bool:
    """Merge as a run does. Return False if nothing was merged."""
    isolation = IsolatedFiles(lambda: workspaces, "")
    for _ in range(3):
        plan = workspaces.plan_merge("", work)
        if plan.conflicts:  # the user's file was empty for a moment
            return False
        try:
            write_merged_files(plan, isolation)
        except ChangedMeanwhileError:
            continue
        return True
    return False


@pytest.mark.timeout(1_800)
def test_s13_what_a_user_types_during_a_merge_is_not_overwritten(
    tmp_path: Path, figure: Figure
) -> None:
    project = make_repository(tmp_path / "project", {"a.txt": "".join(LINES)})
    path = project / "a.txt"
    workspaces = IsolatedWorkspaces(str(tmp_path / "home/isolated/s"), str(project), str(tmp_path))
    folder = workspaces.open("1.1.1", "", same_path=False)
    child = change_line(18, "by the child\n")
    Path(folder.files.folder, "a.txt").write_text(child)
    work = workspaces.store_work("1.1.1")
    draw = random.Random(15)
    lost: list[int] = []
    for number in range(RACES):
        path.write_text("".join(LINES))
        user = TypingUser(path, draw)
        user.start(number, replaces=number % 2 == 0)
        is_merged = merge(workspaces, work, project)
        user.wait()
        text = path.read_text()
        if text not in (user.saved, user.saved.replace(LINES[18], "by the child\n")):
            lost.append(number)
        assert is_merged or text == user.saved
    assert lost == []
    figure("races of a merge with a user who types", f"{RACES:,}, 0 overwritten")
