"""S13: no work of parallel children is lost in a folder with nested repositories and submodules."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from tests.long_form import count_examples
from tests.reliability.conftest import Figure
from tests.workspaces.git_projects import make_repository, run_git

from mudroom._adapters.workspaces.isolated.workspaces import IsolatedWorkspaces

CHILDREN = 6
NESTED = ("nested", "deep/clone", "module")


def make_project(folder: Path) -> Path:
    """Make a repository with a nested one, a clone, and a submodule that has a submodule."""
    inner = make_repository(folder / "inner", {"inner.txt": "inner\n"})
    library = make_repository(folder / "library", {f"{n}.txt": f"{n}\n" for n in range(6)})
    run_git(library, "submodule", "--quiet", "add", str(inner), "inner")
    run_git(library, "commit", "--quiet", "-m", "inner")
    project = make_repository(folder / "project", {"a.txt": "a\n"})
    run_git(project, "submodule", "--quiet", "add", str(library), "module")
    run_git(project, "submodule", "--quiet", "update", "--init", "--recursive")
    run_git(project, "commit", "--quiet", "-m", "module")
    run_git(project, "clone", "--quiet", str(library), "deep/clone")
    make_repository(project / "nested", {f"{n}.txt": f"{n}\n" for n in range(6)})
    (project / "nested" / "0.txt").write_text("dirty\n")
    return project


def work(workspaces: IsolatedWorkspaces, number: int, start: Barrier) -> None:
    """Work as one child does: in every repository, after all children have started."""
    run_id = f"1.1.{number}"
    start.wait()
    folder = Path(workspaces.open(run_id, "", same_path=False).files.folder)
    for name in (".", *NESTED):
        (folder / name / f"by-{number}.txt").write_text(f"{number}\n")
    assert (folder / "module/inner/inner.txt").read_text() == "inner\n"
    assert (folder / "nested/0.txt").read_text() == "dirty\n"
    stored = workspaces.store_work(run_id)
    expected = [os.path.normpath(f"{name}/by-{number}.txt") for name in (".", *NESTED)]
    assert sorted(stored.files) == sorted(expected)
    plan = workspaces.plan_merge("", stored)
    assert sorted(file.path for file in plan.files) == sorted(expected)


@pytest.mark.timeout(3_000)
def test_s13_no_work_of_parallel_children_beside_nested_repositories_is_lost(
    tmp_path: Path, figure: Figure
) -> None:
    project = make_project(tmp_path)
    rounds = count_examples(2, 200)
    for number in range(rounds):
        home = tmp_path / f"home-{number}"
        # Two objects stand for two processes of one session: they share no lock in memory.
        both = [
            IsolatedWorkspaces(str(home / "isolated/s"), str(project), str(home)) for _ in range(2)
        ]
        start = Barrier(CHILDREN)
        with ThreadPoolExecutor(CHILDREN) as pool:
            jobs = [pool.submit(work, both[n % 2], n, start) for n in range(CHILDREN)]
            for job in jobs:
                job.result()
        shutil.rmtree(home)
    figure("children beside nested repositories", f"{rounds * CHILDREN}, 0 lost")
