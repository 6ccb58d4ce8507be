"""Attack 75: what a command plants in a repository, and then the harness runs git. Each payload works with plain git: 6 of 6."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mudroom.errors import WorkspaceError
from mudroom.sandboxes.git import HostGit


class Repository:
    """A repository, a payload that leaves a mark when it runs, and two ways to run git."""

    def __init__(self, base: Path) -> None:
        self.root, self.mark, self.base = base / "proj", base / "pwned", base
        self.root.mkdir()
        self.plain("init", "-q")
        (self.root / "a.txt").write_text("one\n")
        self.plain("add", ".")
        self.plain("commit", "-qm", "first")
        self.payload = base / "payload"
        self.payload.write_text(f"#!/bin/sh\ntouch {self.mark}\ncat 2>/dev/null\n")
        self.payload.chmod(0o755)

    def plain(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = ["git", "-c", "user.name=x", "-c", "user.email=x@x", *arguments]
        return subprocess.run(
            argv, cwd=self.root, capture_output=True, text=True, input="", check=False, timeout=20
        )

    def safe(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        git = HostGit(str(self.root), str(self.base / "own"))
        env = git.env(os.environ)
        return subprocess.run(
            git.argv(*arguments),
            cwd=self.root,
            env=env,
            capture_output=True,
            text=True,
            input="",
            check=False,
            timeout=20,
        )


def fsmonitor(repo: Repository) -> list[str]:
    repo.plain("config", "core.fsmonitor", str(repo.payload))
    return ["status", "--porcelain"]


def checkout_hook(repo: Repository) -> list[str]:
    hook = repo.root / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(repo.payload.read_text())
    hook.chmod(0o755)
    return ["worktree", "add", "--detach", str(repo.base / "tree"), "HEAD"]


def clean_filter(repo: Repository) -> list[str]:
    repo.plain("config", "filter.evil.clean", str(repo.payload))
    (repo.root / ".gitattributes").write_text("* filter=evil\n")
    (repo.root / "a.txt").write_text("two\n")
    return ["diff", "HEAD"]


def external_diff(repo: Repository) -> list[str]:
    repo.plain("config", "diff.evil.command", str(repo.payload))
    (repo.root / ".gitattributes").write_text("* diff=evil\n")
    (repo.root / "a.txt").write_text("two\n")
    return ["diff"]


def pointer(repo: Repository) -> list[str]:
    """The git folder is moved away and a pointer leads to an attacker's."""
    fsmonitor(repo)
    os.rename(repo.root / ".git", repo.root / "evil")
    (repo.root / ".git").write_text(f"gitdir: {repo.root}/evil\n")
    return ["status", "--porcelain"]


def bare(repo: Repository) -> list[str]:
    """Files at the top that look like a bare repository with a monitor."""
    for name in ("objects", "refs"):
        (repo.root / name).mkdir()
    (repo.root / "HEAD").write_text("ref: refs/heads/x\n")
    (repo.root / "config").write_text(
        f"[core]\nrepositoryformatversion = 0\nbare = false\nworktree = {repo.root}\nfsmonitor = {repo.payload}\n"
    )
    os.rename(repo.root / ".git", repo.base / "gone")
    return ["status", "--porcelain"]


PAYLOADS = [fsmonitor, checkout_hook, clean_filter, external_diff, pointer, bare]


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_75_host_git(repo: Repository, payload: Callable[[Repository], list[str]]) -> None:
    arguments = payload(repo)
    try:
        ran = repo.safe(*arguments)
    except WorkspaceError as error:
        assert "no git folder of its own" in str(error)
    else:
        assert ran.returncode == 0, ran.stderr
    assert not repo.mark.exists()


@pytest.mark.parametrize("payload", PAYLOADS)
def test_75_the_payload_runs_with_plain_git(
    repo: Repository, payload: Callable[[Repository], list[str]]
) -> None:
    repo.plain(*payload(repo))
    assert repo.mark.exists()


@pytest.mark.parametrize(
    "key",
    [
        "filter.evil.smudge",
        "filter.evil.process",
        "diff.evil.textconv",
        "core.sshCommand",
        "core.pager",
        "gpg.program",
    ],
)
def test_75_other_settings_that_name_programs(repo: Repository, key: str) -> None:
    repo.plain("config", key, str(repo.payload))
    repo.plain("config", "commit.gpgSign", "true")
    (repo.root / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (repo.root / "a.txt").write_text("two\n")
    for arguments in (
        ["add", "."],
        ["commit", "-m", "x"],
        ["diff", "HEAD~1"],
        ["log", "-p"],
        ["checkout", "--", "."],
        ["fetch", "ssh://x/y"],
    ):
        repo.safe(*arguments)
    assert not repo.mark.exists()


def test_75_variables_of_git_are_ours(repo: Repository) -> None:
    git = HostGit(str(repo.root), str(repo.base / "own"))
    env = git.env(
        {
            "PATH": os.environ["PATH"],
            "GIT_EXTERNAL_DIFF": "x",
            "GIT_SSH": "x",
            "GIT_CONFIG_COUNT": "1",
            "HOME": "/h",
            "LC_ALL": "C",
        }
    )
    assert not {"GIT_EXTERNAL_DIFF", "GIT_SSH", "GIT_CONFIG_COUNT"} & env.keys()
    assert env["HOME"] != "/h" and env["LC_ALL"] == "C"


def test_host_git_says_what_plain_git_says(repo: Repository) -> None:
    (repo.root / "a.txt").write_text("two\n")
    (repo.root / "new").write_text("x")
    for arguments in (
        ["status", "--porcelain"],
        ["diff", "HEAD"],
        ["log", "--oneline"],
        ["rev-parse", "HEAD"],
        ["ls-files"],
    ):
        assert repo.safe(*arguments).stdout == repo.plain(*arguments).stdout != ""


def test_host_git_writes_nothing_into_the_repository(repo: Repository) -> None:
    before = sorted(path.relative_to(repo.root) for path in (repo.root / ".git").rglob("*"))
    (repo.root / "a.txt").write_text("two\n")
    assert repo.safe("commit", "-qam", "ours").returncode == 0
    assert repo.safe("worktree", "add", "--detach", str(repo.base / "tree"), "HEAD").returncode == 0
    assert sorted(path.relative_to(repo.root) for path in (repo.root / ".git").rglob("*")) == before
