"""Small git repositories for tests of isolated workspaces."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from mudroom._adapters.workspaces.isolated.checkout import Checkout, check_out
from mudroom._adapters.workspaces.isolated.git_store import GitStore

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@localhost",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@localhost",
}


def run_git(folder: Path, *arguments: str) -> str:
    """Run git as the user does, and return its output."""
    result = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *arguments],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.decode("utf-8", "surrogateescape")


def write_files(folder: Path, files: dict[str, str | bytes]) -> None:
    """Write files by path."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def make_repository(folder: Path, files: dict[str, str | bytes]) -> Path:
    """Make a repository with one commit."""
    folder.mkdir(parents=True, exist_ok=True)
    run_git(folder, "init", "--quiet", "--initial-branch=main")
    write_files(folder, files)
    run_git(folder, "add", "-A")
    run_git(folder, "commit", "--quiet", "--allow-empty", "-m", "first")
    return folder


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the content of all files below a folder, without those of git."""
    return {
        str(path.relative_to(folder)): os.readlink(path).encode()
        if path.is_symlink()
        else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if ".git" not in path.relative_to(folder).parts and (path.is_symlink() or path.is_file())
    }


def hash_folder(folder: Path) -> str:
    """Return a hash of the names and contents of all files below a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(os.fsencode(path.relative_to(folder)))
        if path.is_file() and not path.is_symlink():
            digest.update(path.read_bytes())
    return digest.hexdigest()


def open_store(folder: Path, source: Path, excluded: Sequence[str] = ()) -> GitStore:
    """Return a store of the files of a source."""
    return GitStore(str(folder / "store.git"), str(source), excluded)


def check_out_source(
    store: GitStore, place: Path, name: str, *, same_path: bool = False
) -> tuple[str, Checkout]:
    """Make a folder with the files of the source. Returns the id of the tree, and the folder."""
    tree = store.store_source().tree
    return tree, check_out(store, tree, str(place / name), name, same_path=same_path)
