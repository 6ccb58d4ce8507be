"""Kinds of folders and repositories: isolated work lands in them, or is refused with a reason.

After each one, the git folders of the user have the same bytes as before.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.workspaces.git_projects import (
    hash_folder,
    make_repository,
    read_files,
    run_git,
    write_files,
)
from tests.workspaces.test_isolated_children import get_results, run_children, run_command

from mudroom import Isolation
from mudroom._adapters.models.scripted import ScriptedModel
from mudroom._adapters.workspaces.isolated import store as store_module

Land = Callable[..., Coroutine[Any, Any, str]]


@pytest.fixture
async def land(tmp_path: Path) -> Land:
    """Return a function that lets a child run a command, and returns the result of its task."""

    async def run(project: Path, command: str, **options: Any) -> str:
        _, model = await _run(project, command, **options)
        return get_results(model)[0]

    return run


async def _run(project: Path, command: str, **options: Any) -> tuple[str, ScriptedModel]:
    async with unchanged_git(project):
        _, model = await run_children(project, {"one": run_command(command)}, **options)
    return get_results(model)[0], model


@asynccontextmanager
async def unchanged_git(project: Path) -> AsyncGenerator[None]:
    """Check that no byte in the git folders of a project and its neighbours changes."""
    places = [path for path in project.parent.rglob(".git") if "home" not in path.parts]
    before = {place: _hash(place) for place in places}
    yield
    assert {place: _hash(place) for place in places} == before


def _hash(place: Path) -> str:
    return hash_folder(place) if place.is_dir() else place.read_text()


def read_output(model: ScriptedModel) -> str:
    """Return the output of the child's command."""
    return next(r for r in model.requests if r.prompt == "one" and r.results).results[0].text


async def test_dirty_files(tmp_path: Path, land: Land) -> None:
    project = make_repository(tmp_path / "app", {"a.txt": "1\n2\n3\n", "gone.txt": "x", "b": "b"})
    write_files(project, {"a.txt": "1 changed\n2\n3\n"})
    (project / "gone.txt").unlink()
    (project / "b").rename(project / "moved")
    result = await land(project, "test ! -e gone.txt && sed -i s/3/child/ a.txt && echo c > moved")
    assert "changes of 2 files are in your files now" in result
    assert read_files(project) == {"a.txt": b"1 changed\n2\nchild\n", "moved": b"c\n"}


async def test_untracked_files(tmp_path: Path, land: Land) -> None:
    project = make_repository(tmp_path / "app", {"a.txt": "a\n", ".gitignore": "*.log\n"})
    write_files(project, {"new/n.txt": "n\n", "wide.txt": "é\r\n".encode("utf-16"), "x.log": "x"})
    await land(project, "test ! -e x.log; echo child >> new/n.txt; git add -A; git commit -qm x")
    assert (project / "new/n.txt").read_text() == "n\nchild\n"
    await land(project, "cp wide.txt copy.txt")
    assert (project / "copy.txt").read_bytes() == (project / "wide.txt").read_bytes()


async def test_ignored_files_that_are_included(tmp_path: Path, land: Land) -> None:
    project = make_repository(
        tmp_path / "app",
        {".gitignore": "*.env\ncache/\n", ".worktreeinclude": "local.env\n", "a": "a\n"},
    )
    write_files(project, {"local.env": "L=1\n", "other.env": "O=1\n", "cache/c": "c"})
    result = await land(project, "cat local.env > a; ls >> a; echo changed > local.env")
    assert "changes of 1 file are in your files now: a]" in result
    assert (project / "a").read_text() == "L=1\na\nlocal.env\n"
    assert (project / "local.env").read_text() == "L=1\n"


@pytest.mark.parametrize("sandbox", ["full", "file"])
async def test_ignored_folders_with_dependencies(tmp_path: Path, land: Land, sandbox: str) -> None:
    project = make_repository(tmp_path / "app", {".gitignore": "node_modules\nenv/\n", "a": "a\n"})
    write_files(
        project, {"node_modules/lib/index.js": "lib\n", "env/pyvenv.cfg": "", "env/x": "x\n"}
    )
    command = "cat node_modules/lib/index.js env/x > a; echo bad > env/x; echo bad > env/new; true"
    await land(project, command, sandbox=sandbox)
    assert (project / "a").read_text() == "lib\nx\n"
    assert (project / "env/x").read_text() == "x\n"
    assert not (project / "env/new").exists()


async def test_no_repository(tmp_path: Path, land: Land) -> None:
    project = tmp_path / "app"
    project.mkdir()
    await land(project, "ls -A > empty")
    assert read_files(project) == {"empty": b"empty\n"}
    write_files(project, {"a.txt": "a\n", ".gitignore": "*.o\n", "x.o": "o", "deep/b": "b\n"})
    await land(project, "test ! -e x.o && test ! -e .git && echo c >> a.txt && rm deep/b")
    assert (project / "a.txt").read_text() == "a\nc\n"
    assert not (project / "deep/b").exists()
    assert (project / "x.o").exists()
    assert not (project / ".git").exists()
    run_git(project, "init", "--quiet")  # a repository without a commit
    await land(project, "test ! -e x.o && echo d >> a.txt")
    assert (project / "a.txt").read_text() == "a\nc\nd\n"


async def test_a_subfolder_follows_the_ignore_rules_above(tmp_path: Path, land: Land) -> None:
    top = make_repository(tmp_path / "app", {".gitignore": "*.pyc\n", "sub/a.py": "a", "b": "b"})
    write_files(top, {"sub/a.pyc": "compiled"})
    result = await land(top / "sub", "ls > new.py; echo x > new.pyc")
    assert "changes of 1 file are in your files now: new.py]" in result
    assert (top / "sub/new.py").read_text() == "a.py\nnew.py\n"


async def test_tracked_files_that_git_ignores(tmp_path: Path, land: Land) -> None:
    project = make_repository(tmp_path / "app", {"a": "a\n", ".gitignore": "dist/\n"})
    write_files(project, {"dist/app.js": "built\n"})
    run_git(project, "add", "--force", "dist/app.js")
    await land(project, "echo child >> dist/app.js")
    assert (project / "dist/app.js").read_text() == "built\nchild\n"


async def test_submodules(tmp_path: Path, land: Land) -> None:
    library = make_repository(tmp_path / "library", {"lib.c": "int x;\n"})
    other = make_repository(tmp_path / "other", {"other.c": "int o;\n"})
    source = make_repository(tmp_path / "source", {"main.c": "int main;\n"})
    run_git(source, "submodule", "--quiet", "add", str(library), "libs/library")
    run_git(source, "submodule", "--quiet", "add", str(other), "libs/other")
    run_git(source, "commit", "--quiet", "-m", "submodules")
    run_git(tmp_path, "clone", "--quiet", str(source), "app")
    project = tmp_path / "app"
    run_git(project, "submodule", "--quiet", "update", "--init", "libs/library")
    write_files(project, {"libs/library/lib.c": "int dirty;\n"})
    result = await land(
        project, "echo 'int child;' >> libs/library/lib.c; echo x >> main.c; ls -A libs/other"
    )
    assert "changes of 2 files" in result
    assert (project / "libs/library/lib.c").read_text() == "int dirty;\nint child;\n"
    assert list((project / "libs/other").iterdir()) == []
    make_repository(project / "nested", {"n.txt": "n\n"})
    await land(project, "echo child >> nested/n.txt")
    assert (project / "nested/n.txt").read_text() == "n\nchild\n"
    assert "libs/library" in run_git(project, "submodule", "status")


async def test_lfs_pointers(tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 12\n"
    attributes = "*.bin filter=lfs diff=lfs merge=lfs -text\n"
    project = make_repository(
        tmp_path / "app", {".gitattributes": attributes, "p.bin": pointer.format("a" * 64)}
    )
    run_git(project, "config", "filter.lfs.smudge", "false")
    run_git(project, "config", "filter.lfs.clean", "false")
    run_git(project, "config", "filter.lfs.required", "true")
    write_files(project, {"real.bin": b"\0real content"})
    children = {
        "one": run_command("sed -i s/aaaa/bbbb/ p.bin; printf '\\0one' > real.bin"),
        "two": run_command("sleep 1; sed -i s/aaaa/cccc/ p.bin"),
        "three": run_command("sleep 1; printf '\\0three' > real.bin"),
    }
    async with unchanged_git(project):
        _, model = await run_children(project, children, isolation=Isolation(max_returns=0))
    results = get_results(model)
    assert "p.bin, real.bin]" in results[0]
    assert "p.bin (both-modified)" in results[1]
    assert "real.bin (binary)" in results[2]
    assert (project / "real.bin").read_bytes() == b"\0one"


async def test_sparse(tmp_path: Path, land: Land) -> None:
    main = make_repository(tmp_path / "main", {"in/a": "a\n", "out/b": "b\n"})
    run_git(tmp_path, "clone", "--quiet", str(main), "app")
    project = tmp_path / "app"
    run_git(project, "sparse-checkout", "set", "in")
    await land(project, "test ! -e out && echo child >> in/a")
    assert read_files(project) == {"in/a": b"a\nchild\n"}
    assert run_git(project, "status", "--short").split() == ["M", "in/a"]


async def test_shallow(tmp_path: Path, land: Land) -> None:
    main = make_repository(tmp_path / "main", {"a": "a\n"})
    run_git(main, "commit", "--quiet", "--allow-empty", "-m", "second")
    run_git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{main}", "app")
    await land(tmp_path / "app", "git log --oneline | wc -l > a && git fsck --no-dangling >> a")
    assert (tmp_path / "app/a").read_text() == "1\n"


async def test_alternates(tmp_path: Path, land: Land) -> None:
    main = make_repository(tmp_path / "main", {"a": "a\n"})
    run_git(tmp_path, "clone", "--quiet", "--shared", str(main), "app")
    # The child has the files without the history: the sandbox hides the folder with the objects.
    await land(tmp_path / "app", "cat a > b; git log --oneline >> b 2> /dev/null; ls -A >> b")
    assert (tmp_path / "app/b").read_text() == "a\na\nb\n"


async def test_a_linked_worktree(tmp_path: Path, land: Land) -> None:
    main = make_repository(tmp_path / "main", {"a": "a\n"})
    run_git(main, "worktree", "add", "--quiet", "-b", "side", str(tmp_path / "app"))
    await land(tmp_path / "app", "git branch --show-current > a; git log --format=%s >> a")
    assert (tmp_path / "app/a").read_text() == "side\nfirst\n"
    assert (main / "a").read_text() == "a\n"


async def test_converted_line_ends_and_filters(tmp_path: Path, land: Land) -> None:
    attributes = "*.txt text\n*.id ident\n*.enc filter=rot\n*.u16 working-tree-encoding=UTF-16LE\n"
    project = make_repository(tmp_path / "app", {".gitattributes": attributes, "k.id": "$Id$\n"})
    run_git(project, "config", "core.autocrlf", "true")
    run_git(project, "config", "filter.rot.clean", "tr a-z A-Z")
    run_git(project, "config", "filter.rot.smudge", "tr A-Z a-z")
    wide = "wide\r\n".encode("utf-16-le")
    write_files(project, {"dos.txt": b"1\r\n2\r\n3\r\n", "s.enc": "secret\n", "a.u16": wide})
    run_git(project, "add", "-A")
    run_git(project, "commit", "--quiet", "-m", "converted")
    command = "sed -i 's/^2/two/' dos.txt; echo more >> s.enc; cat k.id > seen; cp a.u16 b"
    await land(project, command)
    assert (project / "b").read_bytes() == wide
    assert (project / "dos.txt").read_bytes() == b"1\r\ntwo\r\n3\r\n"
    assert (project / "s.enc").read_text() == "secret\nmore\n"
    assert (project / "seen").read_text() == "$Id$\n"


async def test_links(tmp_path: Path, land: Land) -> None:
    project = make_repository(tmp_path / "app", {"a": "a\n", "folder/x": "x\n"})
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    os.symlink("a", project / "inside")
    os.symlink("folder", project / "to-folder")
    os.symlink(secret, project / "outside")
    await land(project, "readlink inside to-folder outside > seen; echo more >> to-folder/x")
    assert (project / "seen").read_text() == f"a\nfolder\n{secret}\n"
    assert (project / "folder/x").read_text() == "x\nmore\n"
    await land(project, "ln -sf folder/x inside; ln -s ../a folder/new; rm to-folder")
    assert os.readlink(project / "inside") == "folder/x"
    assert (project / "folder/new").read_text() == "a\n"
    assert not os.path.lexists(project / "to-folder")
    await land(project, "rm outside; echo text > outside; ln -sfn folder a")
    assert not (project / "outside").is_symlink()
    assert (project / "outside").read_text() == "text\n"
    assert os.readlink(project / "a") == "folder"
    before = read_files(project)
    for command, path in (
        ("ln -s /etc/passwd new", "new"),
        ("ln -s ../secret up", "up"),
        ("ln -s folder/../../secret up", "up"),
        ("ln -s .git/hooks hooks", "hooks"),
    ):
        result = await land(project, f"echo child >> outside; {command}")
        assert "[merge: not done" in result
        assert path in result
        assert read_files(project) == before
    await land(project, "rm -r folder; ln -s . folder")
    assert os.readlink(project / "folder") == "."
    assert secret.read_text() == "secret\n"


async def test_modes(tmp_path: Path, land: Land) -> None:
    project = make_repository(tmp_path / "app", {"on": "x\n", "off": "x\n", "both": "1\n2\n3\n"})
    (project / "off").chmod(0o755)
    await land(project, "chmod +x on; chmod -x off; chmod +x both; sed -i s/3/three/ both")
    assert [os.access(project / name, os.X_OK) for name in ("on", "off", "both")] == [
        True,
        False,
        True,
    ]
    assert (project / "both").read_text() == "1\n2\nthree\n"


async def test_empty_folders(tmp_path: Path, land: Land) -> None:
    project = make_repository(tmp_path / "app", {"a": "a\n"})
    (project / "empty").mkdir()
    result = await land(project, "ls > seen; mkdir -p new/empty")
    assert "seen]" in result
    assert (project / "seen").read_text() == "a\nseen\n"
    assert "[not stored, so not merged: new/empty (empty folder)]" in result
    assert (project / "empty").is_dir()
    assert not (project / "new").exists()


UNSEEN = {
    "mkdir -p new/deep/er other": "new/deep/er (empty folder), other (empty folder)",
    "mkdir 1 2 3 4 5": "1 (empty folder), 2 (empty folder), 3 (empty folder), 2 more (empty folder",
    "mkdir new; mkfifo new/pipe": "new/pipe (pipe, socket or device)",
    "mkfifo folder/pipe": "folder/pipe (pipe, socket or device)",
    "rm -r folder; mkfifo folder": "folder (pipe, socket or device)",
    "rm a; mkdir a": "a (empty folder)",
    "rm a; mkfifo a": "a (is no regular file)]",
    "mkdir $'new\nline'": "new line (empty folder)",
}
NOTHING_UNSEEN = (
    "rm -r folder/*",
    "rm folder/deep/x",
    "mkdir -p ignored/empty; mkfifo a.tmp ignored/pipe",
    "git init -q new; echo x > new/x; git gc -q",
    "mkdir new; echo x > new/x; ln -s new link",
)


@pytest.mark.parametrize("command", [*UNSEEN, *NOTHING_UNSEEN])
async def test_what_no_tree_has_is_named(tmp_path: Path, land: Land, command: str) -> None:
    ignored = "*.tmp\nignored/\n"
    files: dict[str, str | bytes] = {"a": "a", "folder/deep/x": "x", ".gitignore": ignored}
    project = make_repository(tmp_path / "app", files)
    result = await land(project, f"echo new > b; {command}")
    line = result.partition("[not stored, so not merged: ")[2]
    assert UNSEEN[command] in line if command in UNSEEN else line == ""


async def test_quota(tmp_path: Path, land: Land) -> None:
    project = make_repository(tmp_path / "app", {"a": "a\n"})
    write_files(project, {"data": os.urandom(700_000)})
    before = read_files(project)
    result = await land(project, "echo x > a", isolation=Isolation(max_mb=1))
    assert "take 1 MiB; one more of 1 MiB would pass the limit of 1 MiB" in result
    assert "isolated_mb" in result
    assert read_files(project) == before
    write_files(project, {"more": os.urandom(700_000)})
    result = await land(project, "echo x > a", isolation=Isolation(max_mb=1))
    assert "has 1 MiB of files that git does not ignore" in result
    assert "can have 1 MiB" in result
    result = await land(project, "echo x > a", isolation=Isolation(max_mb=20))
    assert (project / "a").read_text() == "x\n"


async def test_large_files(tmp_path: Path) -> None:
    project = make_repository(tmp_path / "app", {"a": "a\n"})
    with open(project / "large.bin", "wb") as file:
        file.truncate((50 << 20) + 1)
    result, model = await _run(project, "test ! -e large.bin && echo b > a")
    assert "a]" in result
    assert (project / "a").read_text() == "b\n"
    request = next(request for request in model.requests if request.prompt == "one")
    assert "Your copy of the folder lacks: large.bin (larger than 50 MiB)." in str(request)
    assert (project / "large.bin").stat().st_size == (50 << 20) + 1


async def test_renames_of_case(tmp_path: Path) -> None:
    text = "".join(f"{number}\n" for number in range(30))
    project = make_repository(tmp_path / "app", {"Readme.md": text, "b": "b\n"})
    children = {
        "one": run_command("mv Readme.md README.md"),
        "two": run_command("sed -i s/^20$/two/ Readme.md"),
    }
    async with unchanged_git(project):
        await run_children(project, children)
    assert read_files(project) == {
        "README.md": text.replace("\n20\n", "\ntwo\n").encode(),
        "b": b"b\n",
    }


async def test_too_many_files(tmp_path: Path, land: Land, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_repository(tmp_path / "app", {f"{name}.txt": "x" for name in range(12)})
    before = read_files(project)
    monkeypatch.setattr(store_module, "MAX_FILES", 10)
    result = await land(project, "echo x > new")
    assert "has 12 files that git does not ignore; an isolated workspace can have 10" in result
    assert read_files(project) == before
    monkeypatch.setattr(store_module, "MAX_FILES", 12)
    await land(project, "echo x > 3.txt")
    assert (project / "3.txt").read_text() == "x\n"


async def test_names_that_are_not_utf_8(tmp_path: Path, land: Land) -> None:
    project = make_repository(tmp_path / "app", {"a": "a\n"})
    result = await land(project, r"printf x > $'caf\xe9'; printf y > $'new\nline'; printf z > 数据")
    assert "changes of 3 files" in result
    folder = os.fsencode(project)
    for name, content in ((b"caf\xe9", b"x"), (b"new\nline", b"y"), ("数据".encode(), b"z")):
        with open(os.path.join(folder, name), "rb") as file:
            assert file.read() == content


async def test_a_folder_that_cannot_be_written(tmp_path: Path, land: Land) -> None:
    project = make_repository(tmp_path / "app", {"a": "a\n", "fixed/b": "b\n"})
    (project / "fixed/b").chmod(0o444)
    await land(project, "chmod u+w fixed/b; echo x > a")
    assert (project / "a").read_text() == "x\n"
