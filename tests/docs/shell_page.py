"""A shell that carries out the steps of a page: files are saved, commands run, in order."""

from __future__ import annotations

import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.waiting import block_until

STEP = re.compile(
    r"^`(?P<path>[\w./-]+)`:\n\n```\w*\n(?P<content>.*?)^```$"
    r"|^```console\n(?P<commands>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
KILL = "timeout -s KILL 3 "  # on a page; a test waits for the record instead
PROMPT = "mudroom >> "
MARK = "exit-code-of-the-step:"
SECONDS = 300  # the longest wait for one output


def list_commands(block: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of a console block, with the output that the page shows."""
    for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = step.partition("\n")
        yield command, shown


def matches(shown: str, output: str) -> bool:
    """Return True if the output has the shown text; "…" stands for any text."""
    parts = (re.escape(part.strip("\n")) for part in shown.strip("\n").split("…"))
    return re.search(".*".join(parts), output, re.DOTALL) is not None


class PageShell:
    """One bash process, so that `cd` and variables last from step to step."""

    def __init__(
        self, folder: Path, env: Mapping[str, str], addresses: Mapping[str, str] | None = None
    ) -> None:
        """Start the shell in a folder.

        Arguments:
            addresses: replacements for the addresses on the page, because tests use free ports.
        """
        self.addresses = addresses or {}
        self.env = env
        self.folder = folder
        self.ran: list[str] = []
        self.started: list[subprocess.Popen[str]] = []
        self.bash = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=env,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        # The virtual environment of the tests is complete: `make` does not install it again.
        self.run('make() { command make -o .venv/installed "$@"; }')

    def close(self) -> None:
        """End the shell, and press Ctrl+C in the programs that it started."""
        for process in self.started:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=SECONDS)
        self.bash.kill()
        self.bash.communicate()

    def run(self, command: str) -> tuple[int, str]:
        """Run one command and return its exit code and its output, stderr included."""
        assert self.bash.stdin and self.bash.stdout
        self.bash.stdin.write(f"{command} </dev/null\ncode=$?; echo; echo {MARK}$code $PWD\n")
        self.bash.stdin.flush()
        lines: list[str] = []
        for line in self.bash.stdout:
            if line.startswith(MARK):
                code, _, folder = line.removeprefix(MARK).strip().partition(" ")
                self.folder = Path(folder)
                return int(code), "".join(lines)
            lines.append(line)
        raise AssertionError(f"the shell ended in {command}: {''.join(lines)}")

    def follow(self, page: Path) -> None:
        """Carry out all steps of a page and compare the outputs with those of the page."""
        for step in STEP.finditer(page.read_text("utf-8")):
            if step["path"]:
                file = self.folder / step["path"]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(step["content"], "utf-8")
                continue
            for command, shown in list_commands(step["commands"]):
                self.ran.append(command)
                for written, real in self.addresses.items():
                    command = command.replace(written, real)
                if command == "mudroom":
                    output = self.type_at_prompt(shown)
                    shown = re.sub(rf"^{PROMPT}.*\n", "…", shown, flags=re.MULTILINE)
                elif command == "mudroom view":
                    output = self.open_viewer()
                elif command.endswith(" &"):
                    output = self.start(command.removesuffix(" &"))
                elif KILL in command:
                    output = self.kill_when_recorded(command.replace(KILL, "exec "))
                else:
                    code, output = self.run(command)
                    assert code == 0, f"{command}: {output}"
                assert matches(shown, output), f"{command}\n{output}"

    def start(self, command: str) -> str:
        """Start a program that keeps running, and return its first line."""
        process = subprocess.Popen(
            shlex.split(command),
            cwd=self.folder,
            env={**self.env, "PYTHONUNBUFFERED": "1"},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.started.append(process)
        assert process.stdout
        return process.stdout.readline()

    def type_at_prompt(self, shown: str) -> str:
        """Run the interactive prompt, type the lines after PROMPT, and return all output."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            ["mudroom"],
            cwd=self.folder,
            env={**self.env, "TERM": "dumb"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        output = b""
        try:
            for line in re.findall(rf"^{PROMPT}(.*)$", shown, re.MULTILINE):
                seen = len(output)
                while b">>" not in output[seen:]:
                    output += os.read(ours, 65536)
                os.write(ours, line.encode() + b"\n")
            assert process.wait(SECONDS) == 0
            return output.decode()
        finally:
            process.kill()
            process.wait()
            os.close(ours)

    def kill_when_recorded(self, command: str) -> str:
        """Start a command and kill it when its session is recorded."""
        before = self.run("mudroom runs")[1].count("\n")
        process = subprocess.Popen(["bash", "-c", command], cwd=self.folder, env=self.env)
        try:
            block_until(lambda: self.run("mudroom runs")[1].count("\n") > before)
        finally:
            process.kill()
        assert process.wait() == -signal.SIGKILL
        return "Killed"

    def open_viewer(self) -> str:
        """Run the viewer until it prints its address, then press Ctrl+C."""
        process = subprocess.Popen(
            ["mudroom", "view"],
            cwd=self.folder,
            env={**self.env, "BROWSER": "true"},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            assert process.stdout
            output = next(line for line in process.stdout if "http://" in line)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=SECONDS)
            return output
        finally:
            process.kill()
            process.wait()


def make_environ(home: Path) -> dict[str, str]:
    """Return the environment of a user without a key."""
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "MUDROOM_HOME": str(home / "state"),
        "XDG_CONFIG_HOME": str(home / "etc"),
        "MUDROOM_OFFLINE_PACE": "",
        "LANG": "C.UTF-8",
    }
