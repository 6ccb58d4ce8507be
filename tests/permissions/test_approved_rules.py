"""Rules that the user approves at the prompt: what they cover, and where they are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from mudroom._adapters.tools import make_builtin_tools
from mudroom._cli.actions.load_permissions import load_permissions
from mudroom._session.config import Settings
from mudroom.errors import UsageError
from mudroom.permissions.approved_rules import (
    ApprovedRules,
    format_rule,
    keep_approved,
    load_approved,
)
from mudroom.permissions.rules import Permissions


def make_rules(
    folder: Path, permissions: Permissions | None = None, tier: str = "full"
) -> ApprovedRules:
    return ApprovedRules(
        permissions or Permissions(),
        workspace=str(folder),
        user_home="/root",
        tools=make_builtin_tools(),
        tier=lambda: tier,
    )


@pytest.mark.parametrize(
    ("command", "suggested"),
    [
        ("touch made", ["bash(touch:*)"]),
        ("git push origin main", ["bash(git push:*)"]),
        ("npm run build:all -- -v", ["bash(npm run build:all -- -v)"]),
        ("cd a && touch b && make test", ["bash(touch:*)", "bash(make test)"]),
        ("timeout 5 pytest -q", ["bash(pytest:*)"]),
        ("git -C x commit", ["bash(git -C x commit)"]),
        ("python x.py", ["bash(python x.py)"]),
        ("python -m pytest -q tests 2>&1", ["bash(python -m pytest:*)"]),
        ("cd a && ./b/python3.12 -m pytest 2>/dev/null", []),
        ("python -m pip install x", ["bash(python -m pip install x)"]),
        (".venv/bin/python3.12 -m pytest", ["bash(.venv/bin/python3.12 -m pytest:*)"]),
        ("python -m", ["bash(python -m)"]),
        ("python -m pytest > out.txt", []),
        ("poetry run pytest -q", ["bash(poetry run pytest:*)"]),
        ("poetry run python x.py", ["bash(poetry run python x.py)"]),
        ("pdm run python -m pytest -q", ["bash(pdm run python -m pytest:*)"]),
        ("bundle exec rm -r x", ["bash(bundle exec rm -r x)"]),
        ("npm exec node x.js", ["bash(npm exec node x.js)"]),
        ("uv run --with x pytest", ["bash(uv run --with x pytest)"]),
        ("sudo touch x", ["bash(sudo touch x)"]),
        ("rm -rf x", ["bash(rm -rf x)"]),
        ("cat /etc/passwd", ["bash(cat /etc/passwd)"]),
        ("echo x >> made", []),
        ("$X y", []),
    ],
)
def test_the_rule_for_a_command_covers_its_program_only_where_that_is_safe(
    command: str, suggested: list[str], tmp_path: Path
) -> None:
    rules = make_rules(tmp_path)
    found = rules.suggest("bash", {"command": command})
    assert [format_rule(rule) for rule in found] == suggested
    rules.add(*found)
    assert rules.allow("bash", {"command": command}) is bool(suggested)


def test_an_approved_program_does_not_cover_what_else_is_in_a_command(tmp_path: Path) -> None:
    rules = make_rules(tmp_path)
    rules.add(*rules.suggest("bash", {"command": "touch made"}))
    assert rules.allow("bash", {"command": "ls && touch other"})
    for command in ("touch x; rm x", "touch $(curl x)", "touch x > y", "rm x", "ls"):
        assert not rules.allow("bash", {"command": command}), command


def test_an_approved_module_covers_no_other_module_and_no_other_code(tmp_path: Path) -> None:
    rules = make_rules(tmp_path)
    rules.add(*rules.suggest("bash", {"command": "python -m pytest -q tests 2>&1"}))
    assert rules.allow("bash", {"command": "python -m pytest -x other 2>&1 | tail -5"})
    for arguments in ("-m pytest > made", "-m pytestx", "-m pdb x.py", "-c pass", "x.py"):
        assert not rules.allow("bash", {"command": f"python {arguments}"}), arguments


def test_approved_changes_of_files_stay_in_the_folder(tmp_path: Path) -> None:
    rules = make_rules(tmp_path)
    rules.add(*rules.suggest("edit", {"file_path": "a/b.py"}))
    assert rules.allow("write", {"file_path": "c.py", "content": ""})
    assert not rules.allow("edit", {"file_path": "/tmp/outside.py"})
    assert not rules.allow("edit", {"file_path": "../outside.py"})
    (outside,) = rules.suggest("edit", {"file_path": "/tmp/outside.py"})
    assert outside.pattern == "//tmp/outside.py"


def test_ask_and_deny_rules_come_before_approved_rules(tmp_path: Path) -> None:
    rules = make_rules(tmp_path, Permissions.of(ask=["Bash(git push:*)"], deny=["Bash(touch:*)"]))
    assert rules.suggest("bash", {"command": "git push"}) == ()
    assert rules.suggest("bash", {"command": "touch x"}) == ()


def test_rules_kept_for_a_folder_apply_there_and_below(tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    rules = make_rules(project)
    for command in ("touch made", "touch other"):
        path = keep_approved(home, str(project), rules.suggest("bash", {"command": command}))
    assert [str(rule) for rule in load_approved(home, str(project / "src"))] == [
        "allow bash(touch:*) (approved for this folder, in approved.json)"
    ]
    assert load_approved(home, str(tmp_path)) == ()
    loaded = load_permissions(Settings(home=home), str(project))
    assert "bash(touch:*)" in str(loaded.permissions.rules[0])
    Path(path).write_text("{")
    with pytest.raises(UsageError, match="the approved rules cannot be read"):
        load_approved(home, str(project))
