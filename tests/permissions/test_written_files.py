"""Files that commands change: protected ones are denied, untold ones no rule with `*` allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from mudroom._platform.protected_names import PROTECTED_NAMES
from mudroom.permissions.program_table import WRITING_PROGRAMS

from .conftest import RuleJudge

PROTECTED = (".envrc", ".git/hooks/pre-commit", ".claude/settings.json")
WAYS = {
    "plain": "{command}",
    "dot": "{command_dot}",
    "quotes": "{command_quoted}",
    "case": "{command_upper}",
    "absolute": "{command_absolute}",
    "cd": "cd src && {command_above}",
    "cd protected": "cd {folder} && {command_name}",
    "cd unknown": "cd $x && {command_name}",
    "cd back": "cd - && {command_name}",
    "pattern": "{command_pattern}",
    "braces": "{command_braces}",
    "variable": "{command_variable}",
    "home": "{command_home}",
    "link": "{command_link}",
    "wrapper": "timeout 5 nice {command}",
    "xargs": "ls | xargs {command}",
    "shell": "bash -c '{command}'",
    "loop": "for f in a; do {command}; done",
}
"""Ways of naming a target. Each {command_...} is a writer with a spelling of the protected name."""
WRITERS = """
touch {}
mkdir {}
rmdir {}
rm {}
unlink {}
shred {}
truncate -s 0 {}
tee {}
sponge {}
chmod +x {}
cp a {}
cp a b {}
cp -t {} a
cp --target-directory={} a
install a {}
install -d {}
install -t {} a
mv a {}
mv {} a
mv -t {} a
ln -s a {}
ln -s {} a
ln -st {} a
dd of={}
gzip {}
gunzip {}.gz
curl -o {} http://a
curl --output={} http://a
curl --output-dir {} -O http://a
wget -O {} http://a
wget -P {} http://a
rsync a {}
scp a {}
patch {}
unzip a -d {}
tar cf {} a
tar xf a -C {}
zip {} a
split a {}
sort -o {} a
sed -i s/a/b/ {}
git rm {}
git checkout -- {}
git clone http://a {}
git archive -o {} HEAD
git diff --output={}
git init {}
git format-patch -o {} HEAD
frobnicate {}
frobnicate --output={}
""".strip().splitlines()


def spell(writer: str, name: str, root: Path) -> dict[str, str]:
    """Return the command with each spelling of the protected name."""
    folder, _, base = name.rpartition("/")
    words = {
        "command": name,
        "command_dot": f"./src/../{name}",
        "command_quoted": f"'{name[:2]}'\"{name[2:]}\"",
        "command_upper": name.upper(),
        "command_absolute": f"{root}/{name}",
        "command_above": f"../{name}",
        "command_name": base,
        "command_pattern": f"{name[:3]}*{name[4:]}",
        "command_braces": f"{name[:3]}{{{name[3:]},x}}",
        "command_variable": f"$x{name[2:]}",
        "command_home": f"$HOME/{name}",
        "command_link": f"link/{base}" if folder else "envlink",
    }
    return {key: writer.format(word) for key, word in words.items()} | {"folder": folder or "."}


@pytest.mark.parametrize("writer", WRITERS)
def test_no_rule_with_a_wildcard_allows_a_command_that_may_change_a_protected_file(
    judge_call: RuleJudge, writer: str
) -> None:
    root = judge_call.root
    (root / ".git" / "hooks").mkdir(parents=True)
    (root / "link").symlink_to(root / ".git" / "hooks")
    (root / "envlink").symlink_to(root / ".envrc")
    (root / "a").write_text("")
    program = writer.partition(" ")[0]
    rules = [f"Bash({name}:*)" for name in (program, "cd", "ls", "xargs", "bash", "for", "timeout")]
    allowed = [
        command
        for name in PROTECTED
        for way, frame in WAYS.items()
        # The name alone is protected only in a protected folder.
        if not (way == "cd protected" and "/" not in name)
        # A rule for a program that is not in the table covers every variable.
        and not (way == "variable" and program == "frobnicate")
        and not (way == "link" and name.startswith(".claude"))
        for command in [frame.format(**spell(writer, name, root))]
        if judge_call.bash(command, allow=rules) == "allow"
    ]
    assert allowed == []


@pytest.mark.parametrize(
    "command",
    [
        "cp evil/.envrc .",
        "cp a evil/.envrc src",
        "cp -t src evil/.envrc",
        "cp -rttests evil/.envrc",
        "cp '-ttests\nb' evil/.envrc",
        "mv evil/.git .",
        "mv ../.git/hooks/pre-commit src",
        "ln -s .git/hooks visible",
        "install -t . evil/.envrc",
        "rm -r src/.git",
        "find . -exec cp evil .git/hooks/pre-commit \\;",
        "gunzip .envrc.gz",
    ],
)
@pytest.mark.parametrize("mode", ["default", "acceptEdits", "bypassPermissions"])
def test_a_command_that_changes_a_protected_file_is_denied(
    judge_call: RuleJudge, command: str, mode: str
) -> None:
    judge_call.root.joinpath(".git", "hooks").mkdir(parents=True)
    for rules in (["Bash"], ["Bash(*)", f"Bash({command})"], ["Bash(cp:*)", "Bash(mv:*)"]):
        decision = judge_call("bash", command=command, allow=rules, mode=mode, tier="full")
        assert decision.verdict == "deny", (rules, decision)
        assert "is protected: it decides what your own programs run" in decision.why


@pytest.mark.parametrize(
    "command",
    [
        "cp -r d .",
        "cp $x .",
        "cp a .envr?",
        "cp -b -S rc a .env",
        "mv d src",
        "tar xf a",
        "unzip a",
        "patch -p1",
        "split -a 2 a .env",
        "rm -r .",
        "chmod -R +x d",
        "curl -OJ http://a/b",
        "curl -O http://a/.envrc",
        "curl -K a",
        "wget http://a/%2eenvrc",
        "git apply a",
        "cd $x && touch config",
        "popd && touch config",
        "ls | xargs touch",
    ],
)
def test_what_a_command_changes_must_be_told_by_its_words(
    judge_call: RuleJudge, command: str
) -> None:
    (judge_call.root / "d" / "deep").mkdir(parents=True)
    (judge_call.root / "d" / "deep" / ".envrc").write_text("")
    program = command.partition("&& ")[2] or command
    name = program.partition(" ")[0]
    rules = [f"Bash({name}:*)", "Bash(cd:*)", "Bash(popd:*)", "Bash(ls:*)", "Bash(touch:*)"]
    assert judge_call.bash(command, allow=rules) == "ask"
    if not {*program} & {*"*|"}:
        assert judge_call.bash(program, allow=[f"Bash({program})"]) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "touch a src/b",
        "cp a src",
        "cp src/*.py other",
        "cp .envrc src/a.py",
        "cp a /tmp/b",
        "rm -rf src",
        "ln -s src/a.py b",
        "chmod -R a+r src",
        "dd if=a of=b",
        "tar tf a",
        "gzip a",
        "curl -fsSL http://a/b -o c",
        "git checkout -b topic",
        "git add .vscode/settings.json",
        "frobnicate -x --level=3 src",
    ],
)
def test_a_rule_with_a_wildcard_allows_what_the_words_tell(
    judge_call: RuleJudge, command: str
) -> None:
    name = command.partition(" ")[0]
    assert judge_call.bash(command, allow=[f"Bash({name}:*)"]) == "allow"


@pytest.mark.parametrize("name", sorted(PROTECTED_NAMES))
def test_every_protected_name_is_denied_to_every_plain_writer(
    judge_call: RuleJudge, name: str
) -> None:
    for program, writing in WRITING_PROGRAMS.items():
        if writing.operands in ("all", "moved", "last", "packed"):
            command = f"{program} a {name}"
            assert judge_call.bash(command, allow=["Bash"]) == "deny", command


@pytest.mark.parametrize(
    "command",
    [
        "cp a src",
        "cp -t src a",
        "mv src/a other",
        "rm -r src",
        "rm -r ../project/src",
        "ln -s x src/a",
        "cd src && touch a",
        "touch s?c/a",
        "tee src/a < b",
    ],
)
def test_deny_rules_for_edits_hold_for_files_in_target_folders(
    judge_call: RuleJudge, command: str
) -> None:
    (judge_call.root / "src" / "a").write_text("")
    assert judge_call.bash(command, can_ask=False, deny=["Edit(src/a)"]) == "deny"
    assert judge_call.bash(command, can_ask=True, ask=["Edit(src/a)"], allow=["Bash"]) == "ask"
