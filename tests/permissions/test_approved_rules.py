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
from mudroom.permissions.program_table import APPROVALS, INTERPRETERS, RUNNERS
from mudroom.permissions.rules import Permissions, Rule, Verdict

from .conftest import RuleJudge


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


# --- an approval never covers a command that runs something else


UNLISTED = (
    "tcsh csh nu xonsh elvish julia R guile erl ipython tsx pkexec gosu sg run-parts cpulimit "
    "hyperfine eatmydata proxychains numactl direnv op watchexec env ed vim man less sqlite3 "
    "npm npx yarn pnpm make just docker kubectl gh ssh curl wget rsync tar zip split sort find "
    "sed awk xargs gcc pip mvn gradle node python perl java ansible terraform frobnicate systemctl"
)
"""Programs with which one approval covers the same command only."""

FLAGS = {
    "git clone https://a/b": ["-u ./evil", "--upload-pack=./evil", "--up ./evil", "--config a=b"],
    "git push origin main": [
        "--receive-pack=./evil",
        "--exec=./evil",
        "--force",
        "ext::evil",
        "./evil",
        "+main",
        "main:other",
    ],
    "git fetch origin": ["--upload-pack=./evil", "ext::evil", "./evil", "https://evil/x"],
    "git add a": ["-c core.fsmonitor=evil", "-i", "-e", "../x"],
    "git commit -m x": ["--template=/etc/passwd", "-F /etc/passwd", "-e", "-c HEAD", "--amend"],
    "git log": ["--ext-diff", "--textconv", "--output=x", "-Oevil"],
    "git diff": ["--ext-diff", "--textconv", "--output=x", "--no-index /etc/passwd"],
    "go test ./...": ["-exec ./evil", "-exec=./evil", "-toolexec ./evil", "-o x", "--exec=./evil"],
    "go build ./...": ["-toolexec=./evil", "-ldflags=-extld=evil", "-o /tmp/x", "-overlay=x"],
    "go vet ./...": ["-vettool=./evil"],
    "cargo build": ["--config a='b'", "--config=./evil.toml", "--manifest-path=evil/Cargo.toml"],
    "cargo test": ["+evil", "-Zx", "--manifest-path evil/Cargo.toml", "--target-dir=/tmp/x"],
    "pytest -q": ["-p evil", "-pevil", "-c evil.ini", "--rootdir=/", "--pdbcls=evil:x", "-o a=b"],
    "pytest": ["@evil", "--basetemp=src", "../evil", "/tmp/evil", "--config-file=evil"],
    "python -m pytest": ["-p evil", "-c evil.ini", "/tmp/evil.py"],
    "python -m unittest": ["/tmp/evil.py", "-s /tmp"],
    "mypy src": ["--config-file=evil", "--python-executable=./evil", "--install-types"],
    "ruff check src": ["--config evil.toml", "--output-file=x", "/etc"],
    "black src": ["--config=evil", "--code=x"],
    "flake8 src": ["--config=evil", "--output-file=x"],
    "touch a": ["../x", "/tmp/x", "~/x", ".envrc", "$x"],
    "mkdir a": ["../x", "/tmp/x", ".husky", "$x"],
    "cp a b": ["../x", "/tmp/x", ".envrc", "-t .git/hooks", "-t ..", "-r src"],
    "poetry run pytest": ["-p evil", "-c evil"],
    "uv run pytest": ["--with evil", "-p evil"],
    "npm test": ["--script-shell=./evil", "--node-options=-r./evil", "--prefix evil"],
    "cargo fmt": ["--config-path=evil", "--config a=b"],
}
"""Approved command -> arguments with which the same program runs, reads or writes something else"""
PAIRS = [(command, more) for command, added in FLAGS.items() for more in added]


@pytest.mark.parametrize("name", UNLISTED.split())
def test_a_program_that_is_not_known_to_run_nothing_else_is_approved_as_it_is(
    name: str, tmp_path: Path
) -> None:
    rules = make_rules(tmp_path)
    for command in (f"{name} a", f"{name} run a", f"{name}"):
        found = rules.suggest("bash", {"command": command})
        assert [rule.pattern for rule in found if "*" in rule.pattern] == []
        rules.add(*found)
    for command in (f"{name} b", f"{name} a b", f"{name} run b", f"{name} -c x"):
        assert not rules.allow("bash", {"command": command}), command


@pytest.mark.parametrize(("command", "more"), PAIRS)
def test_an_approval_does_not_cover_arguments_that_do_something_else(
    command: str, more: str, tmp_path: Path
) -> None:
    rules = make_rules(tmp_path, tier="off")
    found = rules.suggest("bash", {"command": command})
    rules.add(*found)
    assert found and rules.allow("bash", {"command": command})
    assert not rules.allow("bash", {"command": f"{command} {more}"})
    first, _, rest = command.partition(" ")
    assert not rules.allow("bash", {"command": f"{first} {more} {rest}"})


@pytest.mark.parametrize(
    ("command", "similar"),
    [
        ("pytest -q", "pytest -x -k 'a or b' tests/test_a.py"),
        ("python -m pytest", "python -m pytest --lf src"),
        ("git push origin main", "git push -u origin topic/x"),
        ("git commit -m 'one'", "git commit -am 'two; three'"),
        ("git add a", "git add -A src"),
        ("cargo test", "cargo test --release some_test -- --nocapture"),
        ("touch a", "touch src/b src/c"),
        ("timeout 5 pytest", "timeout 60 pytest -v"),
    ],
)
def test_an_approval_covers_similar_arguments(command: str, similar: str, tmp_path: Path) -> None:
    rules = make_rules(tmp_path)
    rules.add(*rules.suggest("bash", {"command": command}))
    assert rules.allow("bash", {"command": similar})


@pytest.mark.parametrize("command", APPROVALS)
def test_a_program_in_the_table_of_approvals_runs_no_arguments(command: str) -> None:
    assert command.partition(" ")[0] not in INTERPRETERS | RUNNERS


@pytest.mark.parametrize("pattern", ["xonsh:*", "npm:*", "git:*", "pytest:*", "*", "make *"])
def test_a_wider_rule_that_was_kept_earlier_covers_no_more(pattern: str, tmp_path: Path) -> None:
    home, project = str(tmp_path / "home"), str(tmp_path)
    keep_approved(home, project, (Rule(Verdict.ALLOW, "bash", pattern),))
    rules = ApprovedRules(
        Permissions(rules=load_approved(home, project)),
        workspace=project,
        user_home="/root",
        tools=make_rules(tmp_path)._tools,
        tier=lambda: "full",
    )
    for command in ("xonsh x", "npm test", "git clone a", "pytest -p evil", "make x", "foo"):
        assert rules.list_open_findings("bash", {"command": command}), command
    assert bool(rules.list_open_findings("bash", {"command": "pytest"})) is (pattern != "pytest:*")


def test_a_relative_program_is_approved_for_the_folder_it_is_in(tmp_path: Path) -> None:
    rules = make_rules(tmp_path)
    rules.add(*rules.suggest("bash", {"command": "./run a"}))
    assert rules.allow("bash", {"command": "./run a"})
    assert not rules.allow("bash", {"command": "cd evil && ./run a"})
    assert rules.suggest("bash", {"command": "cd evil && ./run a"}) == ()


@pytest.mark.parametrize(
    "command",
    [
        "npm test --script-sh x",
        "cargo build --config x",
        "cargo +x build",
        "go test -exec x",
        "go vet -vettool=x",
        "git clone -u x a",
        "git clone --u x a",
        "git clone --template=x a",
        "git frobnicate",
        "git push evil::x",
        "split --f=x a",
        "zip -TT x a b",
        "make CC=x",
        "gcc -wrapper x a.c",
        "gcc -B. a.c",
        "ncat -e x",
        "wget --use-askpass=x a",
        "apt-get -o DPkg::Pre-Invoke::=x install a",
        "pandoc --filter x a",
        "sqlite3 a '.shell x'",
        *(f"{name} x" for name in ["tcsh", "nu", "xonsh", "pkexec", "gosu", "sg", "hyperfine"]),
        *(f"{name} x" for name in ["direnv", "op", "numactl", "watchexec", "eatmydata"]),
        *(f"{name} -e x" for name in ["julia", "R", "guile", "erl", "ipython", "tsx"]),
    ],
)
def test_a_rule_of_the_user_allows_no_flags_that_run_something(
    judge_call: RuleJudge, command: str
) -> None:
    name = command.partition(" ")[0]
    for rule in (f"Bash({name}:*)", f"Bash({name} *)", f"Bash({name}*)"):
        assert judge_call.bash(command, allow=[rule]) == "ask", rule
    assert judge_call.bash(command, allow=[f"Bash({command})"]) == "allow"


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("npm run test:*", "npm run test -- --watch"),
        ("make:*", "make -j4 test VERBOSE=1"),
        ("git clone:*", "git clone --depth 1 https://a/b c"),
        ("docker compose:*", "docker compose up"),
    ],
)
def test_a_rule_that_the_user_wrote_means_what_it_says(
    judge_call: RuleJudge, rule: str, command: str
) -> None:
    assert judge_call.bash(command, allow=[f"Bash({rule})"]) == "allow"
