"""Every right that tier file refuses is needed: without it, an attack outside succeeds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mudroom._adapters.sandboxes.linux.daemon.protocol import DaemonSetup, ResourceLimits
from mudroom._adapters.sandboxes.linux.daemon_client import DaemonClient
from mudroom._adapters.sandboxes.linux.kernel import get_landlock_version
from mudroom._adapters.sandboxes.linux.landlock import create_ruleset
from mudroom._adapters.sandboxes.linux.seccomp import build_filter

RIGHTS = {
    "execute": (0, "$O/program"),
    "write file": (1, "echo x >> $O/file"),
    "read file": (2, "cat $O/file"),
    "read folder": (3, "ls $O"),
    "remove folder": (4, "rmdir $O/empty"),
    "remove file": (5, "rm $O/spare"),
    "make folder": (7, "mkdir $O/new"),
    "make file": (8, "ln $O/file $O/linked"),
    "make fifo": (10, "mkfifo $O/fifo"),
    "make link": (12, "ln -s x $O/link"),
    "truncate": (14, "python3 -I -S -c 'import os; os.truncate(\"'$O'/file\", 1)'"),
}
"""Right -> its bit, and an attack that needs no other right.

Left out: devices and sockets (refused by missing capabilities and the filter), links into other
folders (refused by Landlock itself), and the control of devices.
"""

READ, ALL = 0x000D, 0xFFFF


@pytest.mark.skipif(get_landlock_version() < 3, reason="no Landlock")
@pytest.mark.parametrize("right", RIGHTS, ids=[f"file-{right}" for right in RIGHTS])
async def test_86_every_landlock_right_is_needed(tmp_path: Path, right: str) -> None:
    bit, attack = RIGHTS[right]
    found: list[int] = []
    for n, held in enumerate((ALL, ALL & ~(1 << bit))):
        root, outside = tmp_path / f"proj{n}", tmp_path / f"outside{n}"
        for folder in (root, outside / "empty"):
            folder.mkdir(parents=True)
        for name in ("file", "spare", "program"):
            (outside / name).write_text("#!/bin/true\n")
            (outside / name).chmod(0o777)
        rules = dict.fromkeys(("/usr", "/bin", "/lib", "/lib64", "/etc", "/proc", "/dev"), READ) | {
            str(root): ALL
        }
        if right == "execute":  # who may not read a program cannot run it either
            rules[str(outside)] = READ & ~1
        made = create_ruleset(rules, network=False, handled_rights=held)
        setup = DaemonSetup(
            workspace=str(root),
            quarantine=f"{root}-away",
            limits=ResourceLimits()._asdict(),
            seccomp_filter=build_filter(allow_internet=False).hex(),
            restore_existing=True,
        )
        launcher = DaemonClient(setup, tier="file", ruleset=made)
        command = f"O={outside}; {attack}"
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
        found.append(
            (
                await launcher.run(
                    ["/bin/bash", "-c", command], env, timeout=20, sink=lambda _: None
                )
            ).code
        )
        launcher.close()
        os.close(made)
    assert found[0] != 0, "held"
    assert found[1] == 0, "and by this right alone"
