"""scripts/venv on machines that lack something: each gets a word that helps, or what it lacks."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "venv"


class Machine:
    """A machine of few programs, each a script; what is called is written into `log`."""

    def __init__(self, base: Path) -> None:
        self.project, self.bin, self.log = base / "project", base / "bin", base / "log"
        (self.project / "scripts").mkdir(parents=True)
        self.bin.mkdir()
        self.log.touch()
        shutil.copy(SCRIPT, self.project / "scripts" / "venv")
        for name in ("dirname", "mkdir", "cp", "chmod", "touch"):
            (self.bin / name).symlink_to(shutil.which(name) or name)

    def has(self, name: str, body: str) -> None:
        """Install a program."""
        program = self.bin / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >> {self.log}\n{body}\n')
        program.chmod(0o755)

    def install_python(self, *, new: bool = True, venv: str = "true") -> None:
        """Install a Python; `venv`: what making a virtual environment does."""
        making = f"{{ {venv}; }} && mkdir -p .venv/bin && cp {self.bin}/pip .venv/bin/pip"
        version = "exit 0" if new else "exit 1"
        self.has("pip", "exit 0")
        self.has(
            "python3",
            f'case "$1" in -c) {version};; --version) echo "Python 3.9.2";; -m) {making};; esac',
        )

    def run(self) -> subprocess.CompletedProcess[str]:
        """Run the script as a person would."""
        env = {"PATH": str(self.bin)}
        return subprocess.run(
            ["/bin/sh", "scripts/venv", "run"],
            cwd=self.project,
            env=env,
            capture_output=True,
            text=True,
        )

    def run_at_terminal(self) -> tuple[int, str]:
        """Run the script with a terminal as its standard error."""
        ours, theirs = pty.openpty()
        with os.fdopen(ours, "rb", buffering=0) as screen:
            process = subprocess.Popen(
                ["/bin/sh", "scripts/venv", "run"],
                cwd=self.project,
                env={"PATH": str(self.bin)},
                stderr=theirs,
            )
            os.close(theirs)
            shown = b""
            with suppress(OSError):  # Linux: the last process has closed the terminal
                while data := screen.read(4096):
                    shown += data
            return process.wait(), shown.decode()

    @property
    def called(self) -> str:
        """What was called, a line each."""
        return self.log.read_text()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_it_installs_with_hashes_and_then_the_project_itself(machine: Machine) -> None:
    machine.install_python()
    done = machine.run()
    assert (
        done.returncode == 0
        and done.stderr
        == "creating .venv\n"
        "installing mudroom and the packages it needs into .venv (only the first time)\n"
        and done.stdout == ""
    )
    assert (
        "--require-hashes -r requirements/run.txt" in machine.called
        and "--no-deps --no-build-isolation -e ." in machine.called
    )


def test_at_a_terminal_each_package_is_named_while_pip_works(machine: Machine) -> None:
    machine.install_python()
    machine.has(
        "pip",
        "echo 'Collecting anyio==4.16.0 (from -r requirements/run.txt (line 1))'\n"
        "echo '  Using cached anyio-4.16.0-py3-none-any.whl'\n"
        "echo 'Processing /wheels/pydantic_core-2.9.0-cp311.whl (from -r requirements/run.txt)'\n"
        "echo 'Installing collected packages: anyio, pydantic_core'",
    )
    code, screen = machine.run_at_terminal()
    assert code == 0
    assert re.split(r"[\r\n]+", screen.replace("\x1b[K", "").strip())[-4:] == [
        "  1: anyio",
        "  2: pydantic_core",
        "  2 packages are here; unpacking them",
        "  2 packages installed",
    ]


def test_at_a_terminal_a_failed_installation_fails(machine: Machine) -> None:
    machine.install_python()
    machine.has("pip", "echo 'Collecting anyio==4.16.0'; echo 'no space left' >&2; exit 2")
    code, screen = machine.run_at_terminal()
    assert code == 2 and "no space left" in screen and "installed" not in screen
    assert "-e ." not in machine.called


def test_an_old_python_is_named_with_the_remedy(machine: Machine) -> None:
    machine.install_python(new=False)
    done = machine.run()
    assert (
        done.returncode == 1
        and "needs Python 3.11 or newer; python3 is Python 3.9.2. Set PYTHON" in done.stderr
    )
    assert not (machine.project / ".venv").exists()


def test_without_venv_the_error_names_the_package_for_a_user(machine: Machine) -> None:
    machine.install_python(venv="false")
    machine.has("id", "echo 1000")
    machine.has("apt-get", "exit 0")
    done = machine.run()
    assert done.returncode == 1 and done.stderr.endswith("Run: sudo apt install python3-venv\n")
    assert "apt-get" not in machine.called


def test_without_venv_root_has_it_installed(machine: Machine) -> None:
    machine.install_python(venv=f"test -e {machine.bin}/venv-is-there")
    machine.has("id", "echo 0")
    machine.has("apt-get", f'case "$*" in *python3-venv*) touch {machine.bin}/venv-is-there;; esac')
    done = machine.run()
    assert done.returncode == 0, done.stderr
    assert (
        "apt-get install -q -y python3-venv" in machine.called
        and "python3 -m venv --clear .venv" in machine.called
    )


def test_without_apt_the_error_names_the_package_for_root(machine: Machine) -> None:
    machine.install_python(venv="false")
    machine.has("id", "echo 0")
    done = machine.run()
    assert done.returncode == 1 and "python3-venv" in done.stderr


def test_what_was_broken_off_is_taken_up_again(machine: Machine) -> None:
    machine.install_python()
    (machine.project / ".venv" / "bin").mkdir(parents=True)
    assert machine.run().returncode == 0
    assert "-m venv" in machine.called
