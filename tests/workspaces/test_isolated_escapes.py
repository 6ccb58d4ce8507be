"""Attacks by commands and file tools in an isolated workspace: nothing outside it is written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from tests.workspaces.git_projects import hash_folder, make_repository, read_files, write_files
from tests.workspaces.test_isolated_children import run_children, run_command

from mudroom._adapters.models.scripted import call
from mudroom._adapters.sandboxes import detect

PROBES = detect.run_probes(detect.find_bwrap(os.environ, "/nonexistent"), tempfile.gettempdir())
TIERS = [
    tier
    for tier, reason in (("full", PROBES.no_full_reason), ("file", PROBES.no_file_reason))
    if not reason
]

ATTACKS = """
echo evil > {outside}/evil-1
echo evil >> {outside}/key
rm -f {outside}/key; mv {outside}/key {outside}/evil-2
ln -s {outside} evil-link && echo evil > evil-link/evil-3
ln {outside}/key evil-hard && echo evil >> evil-hard
cd .. && echo evil > evil-4
echo evil > ../evil-5; mkdir ../../evil-6
echo evil > /proc/self/cwd/../evil-7
echo evil > /proc/1/root{outside}/evil-8
echo evil > /proc/$PPID/cwd/../evil-9
python3 -c "open('{outside}/evil-10', 'w').write('evil')"
cp -r . {outside}/evil-11
tar -cf {outside}/evil-12 a.txt
git -C {other} commit --allow-empty -m evil
git -C {other} update-ref refs/heads/evil-13 HEAD
GIT_DIR={other}/.git GIT_WORK_TREE={other} git checkout -b evil-14
git --git-dir={other}/.git config core.editor evil-15
git worktree add {outside}/evil-16
git clone . {outside}/evil-17
git push {other} HEAD:refs/heads/evil-18
GIT_OBJECT_DIRECTORY={other}/.git/objects git hash-object -w a.txt
GIT_INDEX_FILE={other}/.git/index git add a.txt
echo evil > .git/borrowed/0/evil-19; chmod -R u+w .git/borrowed; echo evil > .git/borrowed/1/evil-20
rm -rf .git/borrowed/0/* .git/borrowed/1/*
mv .git/borrowed evil-21
for folder in $(cat .git/objects/info/alternates); do rm -rf $folder/*; done
for folder in $(cat .git/objects/info/alternates); do echo evil > $folder/evil-22; done
git gc --prune=now --aggressive; git prune; git repack -a -d
echo evil > node_modules/evil-23; rm -rf node_modules/lib; echo evil >> node_modules/lib.js
mv node_modules evil-24; mount --bind {outside} node_modules; umount node_modules
echo evil > {home}/evil-25; rm -rf {home}/isolated; mkdir -p {home}/isolated/evil-26
for place in {home}/isolated/*/runs/*; do echo evil > $place/evil-27; done
for place in {home}/isolated/*/store.git/*; do rm -rf $place/*; done
find {home} -name '*.db' -exec sh -c 'echo evil > $0' {{}} \\;
chmod -R 777 {outside} {other}
(sleep 0.5; echo evil > {outside}/evil-28) & disown
nohup setsid sh -c 'sleep 0.5; echo evil > {outside}/evil-29' > /dev/null 2>&1 &
unshare -rm sh -c 'mount -o remount,rw /; echo evil > {outside}/evil-30'
"""
"""Each line is run by a shell of its own."""


def list_facts(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return mode, size and time of all entries below a folder."""
    facts = {str(path.relative_to(folder)): path.lstat() for path in folder.rglob("*")}
    return {path: (fact.st_mode, fact.st_size, fact.st_mtime_ns) for path, fact in facts.items()}


@pytest.mark.parametrize("tier", TIERS)
async def test_s13_attacks_from_isolated_workspaces_write_nothing_outside(
    tmp_path: Path, tier: str
) -> None:
    source = {"a.txt": "a\n", ".gitignore": "node_modules\n"}
    project = make_repository(tmp_path / "project", dict(source))
    write_files(project, {"node_modules/lib.js": "lib\n", "node_modules/lib/x.js": "x\n"})
    other = make_repository(tmp_path / "other", {"o.txt": "o\n"})
    outside = tmp_path / "outside"
    write_files(outside, {"key": "secret\n"})
    before = read_files(project)
    git = hash_folder(project / ".git")
    facts = {folder: list_facts(folder) for folder in (other, outside)}
    places = {"outside": outside, "other": other, "home": tmp_path / "home"}
    lines = ATTACKS.format(**places).strip().splitlines()
    if tier == "file":  # the user's folder can be seen at its path
        lines += [f"echo evil > {project}/evil-31; git -C {project} commit --allow-empty -m evil"]
    commands = [*run_command("; ".join(f"({line}) < /dev/null" for line in lines) + "; true")]
    commands += [
        [
            call("write", file_path=f"{outside}/evil-40", content="evil"),
            call("write", file_path="../evil-41", content="evil"),
            call("write", file_path=f"{other}/o.txt", content="evil"),
            call("write", file_path=".git/config", content="evil"),
            call("write", file_path="node_modules/own.js", content="own"),  # ignored, but named
            call("edit", file_path=f"{outside}/key", old_string="secret", new_string="evil"),
        ]
    ]
    commands += run_command("rm -rf evil*; sleep 1.5")
    children = {"attacker": commands, "victim": run_command("sleep 1; echo victim > victim.txt")}
    report, model = await run_children(project, children, sandbox=tier)
    assert report.ok
    request = next(each for each in model.requests if each.prompt == "attacker" and each.results)
    assert request.results[0].text.count("denied") + request.results[0].text.count("Read-only") > 9
    assert {folder: list_facts(folder) for folder in (other, outside)} == facts
    assert hash_folder(project / ".git") == git
    after = read_files(project)
    assert after.pop("victim.txt") == b"victim\n"
    assert after.pop("node_modules/own.js") == b"own"
    assert after == before
    assert [str(path) for path in tmp_path.rglob("evil*")] == []
