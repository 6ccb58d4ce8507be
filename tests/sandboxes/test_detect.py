"""Detection and choice of the sandbox: never a weaker one than requested."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from mudroom._adapters.sandboxes.choose import (
    DeferredSandbox,
    RefusingSandbox,
    SandboxRequest,
    choose_sandbox,
)
from mudroom._adapters.sandboxes.detect import Detected, detect, run_probes
from mudroom._adapters.sandboxes.seatbelt import SeatbeltSandbox
from mudroom._adapters.sandboxes.unsandboxed import Unsandboxed
from mudroom.errors import UsageError, WorkspaceError


def write_program(folder: Path, text: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bwrap").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "bwrap").chmod(0o755)
    return str(folder / "bwrap")


def make_request(
    base: Path, mode: str, *, can_ask: bool = False, path: str = "/nonexistent"
) -> SandboxRequest:
    return SandboxRequest(
        workspace=str(base),
        mode=mode,
        home=str(base / "home"),
        environ={"PATH": path},
        can_ask=can_ask,
    )


@pytest.mark.parametrize(
    ("detected", "tier"),
    [
        (Detected("/b"), "full"),
        (Detected("", "no"), "file"),
        (Detected("", "no", "no"), ""),
        (Detected("/b", "", "no"), "full"),
    ],
)
def test_the_best_tier_is_chosen(detected: Detected, tier: str) -> None:
    assert detected.tier == tier


def test_a_failing_bubblewrap_is_reported_with_its_message(tmp_path: Path) -> None:
    detected = run_probes(
        write_program(
            tmp_path / "bin", "echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1"
        )
    )
    assert detected.no_full_reason.endswith(
        "bin/bwrap fails: bwrap: setting up uid map: Permission denied"
    )
    assert detected.bwrap == ""


def test_a_bubblewrap_that_does_not_isolate_is_detected(tmp_path: Path) -> None:
    path = write_program(tmp_path / "bin", 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"')
    assert (
        run_probes(path).no_full_reason == f"{path} does not isolate: a command could write outside"
    )


def test_missing_bubblewrap_is_reported() -> None:
    assert run_probes("").no_full_reason == "bubblewrap (bwrap) is not installed"


@pytest.mark.parametrize("workspace", ["/", "proj"])
def test_bubblewrap_in_the_workspace_is_reported_as_not_used(
    tmp_path: Path, workspace: str
) -> None:
    path = write_program(tmp_path / "proj" / "bin", "exit 1")
    request = SandboxRequest(
        workspace=workspace if workspace == "/" else str(tmp_path / workspace),
        mode="full",
        home=str(tmp_path / "home"),
        environ={"PATH": f"{tmp_path}/proj/bin"},
    )
    with pytest.raises(UsageError) as raised:
        choose_sandbox(request)
    assert str(raised.value) == (
        f"no sandbox full here: {path} is not used, because it is in the workspace. Start mudroom "
        "in a folder without bubblewrap, or choose another with --sandbox."
    )


def test_the_result_is_cached_for_a_day_and_for_this_program(tmp_path: Path) -> None:
    path = write_program(tmp_path / "bin", f"echo x >> {tmp_path}/tries; exit 1")
    environ, home = {"PATH": str(tmp_path / "bin")}, str(tmp_path / "home")

    def count_tries() -> int:
        detect(str(tmp_path / "ws"), environ, home)
        return len((tmp_path / "tries").read_text().split())

    assert [count_tries(), count_tries()] == [1, 1]
    os.utime(path, (1, 1))
    assert count_tries() == 2, "another program"
    memory = tmp_path / "home" / "sandbox.json"
    known = json.loads(memory.read_text())
    memory.write_text(json.dumps({**known, "at": time.time() - 90_000}))
    assert count_tries() == 3, "a day later"
    memory.write_text("damaged")
    assert count_tries() == 4
    assert memory.stat().st_mode & 0o077 == 0


def test_a_new_state_folder_gets_what_the_process_detected(tmp_path: Path) -> None:
    write_program(tmp_path / "bin", f"echo x >> {tmp_path}/tries; exit 1")
    environ = {"PATH": str(tmp_path / "bin")}
    homes = [tmp_path / "one", tmp_path / "two"]
    first, second = (detect(str(tmp_path / "ws"), environ, str(home)) for home in homes)
    assert first == second and first.no_full_reason
    assert (tmp_path / "tries").read_text().split() == ["x"]
    one, two = ((home / "sandbox.json").read_text() for home in homes)
    assert one == two, "its day does not begin again"


def test_an_unwritable_state_folder_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert detect(
        str(tmp_path), {"PATH": "/nonexistent"}, str(tmp_path / "file" / "home")
    ).no_full_reason


def test_an_unknown_mode_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown sandbox 'none'"):
        choose_sandbox(make_request(tmp_path, "none"))


def write_empty_cache(base: Path) -> None:
    """Make the cache say that no sandbox works on this machine."""
    (base / "home").mkdir()
    detect(str(base), {"PATH": "/nonexistent"}, str(base / "home"))
    memory = base / "home" / "sandbox.json"
    known = json.loads(memory.read_text())
    memory.write_text(
        json.dumps(
            {
                **known,
                "found": {
                    "bwrap": "",
                    "no_full_reason": "no bwrap",
                    "no_file_reason": "no Landlock",
                },
            }
        )
    )


async def test_without_a_sandbox_commands_are_confirmed(tmp_path: Path) -> None:
    write_empty_cache(tmp_path)
    sandbox, notice = choose_sandbox(make_request(tmp_path, "auto", can_ask=True))
    assert sandbox.tier == "ask"
    assert notice.startswith(
        "sandbox ask: neither a full sandbox (no bwrap) nor a file sandbox (no Landlock)"
    )
    output = bytearray()
    assert (await sandbox.run("echo x", timeout=60, sink=output.extend)).code == 0
    assert output == b"x\n"


async def test_without_a_sandbox_and_a_user_nothing_runs(tmp_path: Path) -> None:
    write_empty_cache(tmp_path)
    sandbox, notice = choose_sandbox(make_request(tmp_path, "auto"))
    assert sandbox.tier == "refuse" and isinstance(sandbox, RefusingSandbox)
    assert "so no command runs" in notice
    with pytest.raises(
        WorkspaceError,
        match=r"no command can run: .* no user can confirm it\. .*install .*--sandbox off",
    ):
        await sandbox.run(f"touch {tmp_path}/ran", timeout=60, sink=lambda chunk: None)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("mode", ["full", "file"])
def test_a_requested_tier_that_does_not_work_is_an_error(tmp_path: Path, mode: str) -> None:
    write_empty_cache(tmp_path)
    with pytest.raises(UsageError, match=f"no sandbox {mode} here"):
        choose_sandbox(make_request(tmp_path, mode, can_ask=True))


def test_seatbelt_is_an_error_on_linux(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it needs macOS"):
        choose_sandbox(make_request(tmp_path, "experimental-seatbelt"))


def act_as_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_accessible(path: str, mode: int) -> bool:
        return True

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(os, "access", is_accessible)


def test_auto_never_chooses_seatbelt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    act_as_mac(monkeypatch)
    detected = run_probes("")
    assert detected.tier == ""
    assert "only with --sandbox experimental-seatbelt" in detected.no_file_reason
    sandbox, _ = choose_sandbox(make_request(tmp_path, "auto", can_ask=True))
    assert sandbox.tier == "ask"
    with pytest.raises(UsageError, match="no sandbox file here"):
        choose_sandbox(make_request(tmp_path, "file"))


def test_seatbelt_is_opened_only_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    act_as_mac(monkeypatch)
    sandbox, notice = choose_sandbox(make_request(tmp_path, "experimental-seatbelt"))
    assert isinstance(sandbox, SeatbeltSandbox) and sandbox.tier == "file"
    assert "has not been tested on a Mac" in notice
    sandbox.close()


async def test_a_deferred_sandbox_is_created_at_its_first_command() -> None:
    created: list[Unsandboxed] = []

    def create() -> Unsandboxed:
        created.append(Unsandboxed("/"))
        return created[-1]

    sandbox = DeferredSandbox("full", create)
    sandbox.close()
    assert (sandbox.tier, created) == ("full", [])
    output = bytearray()
    for _ in range(2):
        result = await sandbox.run("pwd", timeout=20, sink=output.extend)
        assert result.code == 0
    assert (bytes(output), len(created)) == (b"/\n/\n", 1)
    sandbox.close()
