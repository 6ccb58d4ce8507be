"""Files that a rule denies to read: searches leave them out, and no other name opens them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._adapters.tools import make_builtin_tools
from mudroom._adapters.workspaces.shared import SharedWorkspace
from mudroom.errors import WorkspaceError
from mudroom.permissions.policy import FilteredWorkspace
from mudroom.permissions.rules import Permissions

from .conftest import Play

HELD = Permissions.of(deny=["Read(.env)", "Read(secrets/**)"])


@pytest.fixture
def project(play: Play) -> Path:
    root: Path = play.folder
    (root / "secrets").mkdir()
    (root / "sub").mkdir()
    for name in (".env", "sub/.env", "secrets/key", "SECRET.txt", "sub/a.txt"):
        (root / name).write_text("needle\n")
    (root / "folder").symlink_to("secrets")
    (root / "alias").symlink_to(".env")
    return root


LOOKING = [
    ("grep", {"pattern": "needle"}),
    ("grep", {"pattern": "needle", "path": "secrets"}),
    ("grep", {"pattern": "needle", "path": "./secrets/"}),
    ("grep", {"pattern": "needle", "path": "folder"}),
    ("grep", {"pattern": "needle", "path": "{root}/folder"}),
    ("grep", {"pattern": "needle", "glob": "**/.env"}),
    ("grep", {"pattern": "needle", "output_mode": "content"}),
    ("glob", {"pattern": "**/*"}),
    ("glob", {"pattern": "**/.env"}),
    ("glob", {"pattern": "*", "path": "secrets"}),
    ("glob", {"pattern": "*", "path": "folder"}),
    ("glob", {"pattern": "{root}/folder/*"}),
]


@pytest.mark.parametrize(
    ("tool", "arguments"), LOOKING, ids=[f"{tool} {filled}" for tool, filled in LOOKING]
)
async def test_searches_leave_out_denied_files(
    play: Play, project: Path, tool: str, arguments: dict[str, str]
) -> None:
    filled = {name: value.replace("{root}", str(project)) for name, value in arguments.items()}
    await play([[call(tool, **filled)], "Done."], permissions=HELD)
    text = play.results[0].result.text
    assert ".env" not in text.replace("match **/.env", "") and "key" not in text
    await play([[call(tool, **filled)], "Done."])
    text = play.results[-1].result.text
    assert ".env" in text or "key" in text, "the same finds them where no rule denies it"


async def test_searches_find_files_that_are_not_denied(play: Play, project: Path) -> None:
    await play(
        [[call("grep", pattern="needle"), call("glob", pattern="**/*")], "Done."], permissions=HELD
    )
    left_out = "(not searched: 2 links (alias, folder), 3 files that may not be read)"
    assert [sorted(finished.result.text.split("\n")) for finished in play.results] == [
        [left_out, "SECRET.txt", "sub/a.txt"]
    ] * 2


OPENING = [
    ".env",
    "sub/.env",
    "alias",
    "folder/key",
    "{root}/.env",
    "/{root}/.env",
    "sub/../.env",
    "~/x",
]


@pytest.mark.parametrize("path", OPENING)
@pytest.mark.parametrize("tool", ["read", "edit"])
async def test_a_denied_file_is_not_opened(play: Play, project: Path, tool: str, path: str) -> None:
    path = path.replace("{root}", str(project))
    more = {"old_string": "needle", "new_string": "x"} if tool == "edit" else {}
    await play([[call(tool, file_path=path, **more)], "Done."], permissions=HELD)
    (finished,) = play.results
    assert finished.result.error and "needle" not in finished.result.text
    assert (project / ".env").read_text() == "needle\n"


async def test_a_denied_file_is_hidden_from_children(play: Play, project: Path) -> None:
    def script(request: Request) -> Answer:
        if "PARENT" in request.prompt:
            return "Done." if request.results else [call("task", prompt="look", description="d")]
        return (
            "Nothing."
            if request.results
            else [call("grep", pattern="needle"), call("read", file_path=".env")]
        )

    await play(script, permissions=HELD)
    result_texts = [finished.result.text for finished in play.results if finished.run != "1"]
    assert (
        not any("needle" in text or ".env\n" in text for text in result_texts)
        and len(result_texts) == 2
    )


def test_the_opened_file_is_checked_not_its_name(tmp_path: Path) -> None:
    """A link that changes between the check and the opening has no effect."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "good").write_text("good")
    (root / "bad").write_text("bad")
    (root / "link").symlink_to("bad")

    def barring(path: str) -> str:
        if path == str(root / "link"):
            os.unlink(path)
            os.symlink("good", path)
        return "it is bad" if path == str(root / "bad") else ""

    view = FilteredWorkspace(SharedWorkspace(str(root)), barring)
    with pytest.raises(WorkspaceError, match="it is bad"):
        view.open("link")
    os.close(view.open("good"))


@pytest.mark.parametrize("folder", [".", "secrets", "folder"])
def test_a_listing_of_all_entries_leaves_out_denied_files(
    play: Play, project: Path, folder: str
) -> None:
    def find_refusal(path: str) -> str:
        return "denied" if path == str(project / "secrets/key") else ""

    workspace = SharedWorkspace(str(project))
    filtered = FilteredWorkspace(workspace, find_refusal)
    for everything, readable in (
        (workspace.walk_entries(folder), filtered.walk_entries(folder)),
        (workspace.walk(folder), filtered.walk(folder)),
    ):
        hidden = {info.path for info in everything} - {info.path for info in readable}
        assert hidden == {f"{'folder' if folder == 'folder' else 'secrets'}/key"}


def test_without_read_rules_the_workspace_is_unchanged(tmp_path: Path) -> None:
    from mudroom import Agent
    from mudroom._core.budgets import Budget
    from mudroom._core.runs import Brief
    from mudroom.permissions.policy import RulePolicy

    workspace = SharedWorkspace(str(tmp_path))
    brief = Brief(
        run_id="1", agent=Agent(name="a"), prompt="p", tools=(), model="m", budget=Budget()
    )
    for base_rules in (Permissions(), Permissions.of(deny=["Bash(rm:*)"])):
        assert (
            RulePolicy(
                base_rules,
                workspace=str(tmp_path),
                user_home="/",
                tools=make_builtin_tools(),
                tier=lambda: "off",
            ).filter_workspace(workspace, "grep", brief)
            is workspace
        )
