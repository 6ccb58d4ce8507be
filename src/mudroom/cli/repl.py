"""A prompt to type at: one session, prompt after prompt, a live tree while it works, the answer on stdout."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from .._core.agents import Report
from .._core.events import AnyEvent
from .._engine.ledger import Tally, sentence
from .._engine.tree import Tree, clean
from .._version import __version__
from ..config import Settings
from ..errors import MudroomError, UsageError, suggest
from ..session import Session
from .format import one_line, tokens
from .interrupts import interrupts
from .print_mode import session, why
from .screens import Screen, colored, say

PROMPT = "mudroom >> "
LEAVING = ("q", "exit", "quit", "/exit", "/quit", "/q")
HELP = """\
Say what is to be done; big tasks are cut into small ones, each in a clean context of its own.
  /runs    the runs of this session
  /cost    tokens so far, and what the children kept out of the context
  /clear   forget the conversation and begin a new session
  /help    this
  /exit    leave; so do q, exit, quit and Ctrl-D
Ctrl-C stops the run and keeps the session."""

Ask = Callable[[], Awaitable[str]]
"""Gives the next line typed. Raises EOFError at the end of input, KeyboardInterrupt on Ctrl-C."""


async def converse(settings: Settings, *, cwd: str, first: str = "", verbose: bool = False, quiet: bool = False) -> int:
    """Talk until the person leaves; the exit code.

    Arguments:
        first: a prompt given on the command line, run before anything is asked.
    """
    ask = keyboard(settings.home, cwd)
    say(f"mudroom {__version__}  ·  /help says what you can do", prefix="")
    while True:
        async with session(settings, cwd) as opened:
            talk = Conversation(opened, settings, verbose=verbose, quiet=quiet)
            code = await talk.until_done(ask, first)
        if code is not None:
            return code
        first = ""


def keyboard(home: str, cwd: str, **terminal: Any) -> Ask:
    """The terminal's line editor, with a history for each folder.

    Arguments:
        home: where histories are kept. cwd: the folder this one belongs to. terminal: input and output, for tests.
    """
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory

    path = history_path(home, cwd)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_APPEND, 0o600))
    editor: PromptSession[str] = PromptSession(history=FileHistory(str(path)), **terminal)

    async def ask() -> str:
        return await editor.prompt_async(PROMPT)

    return ask


def history_path(home: str, cwd: str) -> Path:
    """The file that keeps what was typed in one folder."""
    return Path(home, "history", hashlib.sha256(os.path.realpath(cwd).encode("utf-8", "surrogateescape")).hexdigest()[:16])


class Conversation:
    """One open session and the person in front of it."""

    def __init__(self, opened: Session, settings: Settings, *, verbose: bool, quiet: bool) -> None:
        self._session, self._color, self._verbose, self._quiet = opened, settings.color, verbose, quiet
        self._tree, self._tally, self._screen = Tree(), Tally(), Screen("never", quiet=True)
        self._screen.notices(opened.notices if not quiet else [])
        self._commands = {"/help": self._help, "/runs": self._runs, "/cost": self._cost}
        opened.watch(self._apply)

    async def until_done(self, ask: Ask, first: str = "") -> int | None:
        """Answer line after line; the exit code, or None when a new session is wanted."""
        line, hurried = first, False
        while True:
            try:
                line = line or (await ask()).strip()
            except EOFError:
                return 0
            except KeyboardInterrupt:
                if hurried:
                    return 0
                hurried = True
                say("Ctrl-C again, or Ctrl-D, leaves.", prefix="")
                continue
            hurried, word, line = False, line, ""
            if word.lower() in LEAVING:
                return 0
            if word == "/clear":
                return None
            if word and (code := await self._obey(word)):
                return code

    async def _obey(self, word: str) -> int:
        """Do one line. Anything but 0 ends the program with that code."""
        if not word.startswith("/"):
            return await self._run(word)
        name = word.split()[0]
        if command := self._commands.get(name):
            command()
        else:
            say(f"unknown command {name}. {suggest(name, [*self._commands, '/clear', '/exit'])}", prefix="")
        return 0

    async def _run(self, prompt: str) -> int:
        self._screen = Screen(self._color, verbose=self._verbose, quiet=self._quiet)
        try:
            with interrupts(self._session.cancel) as signals, self._screen:
                report = await self._session.run(prompt)
        except UsageError as error:
            say(str(error), prefix="")
            return 0
        except MudroomError as error:
            say(str(error), prefix="")
            return 1
        self._answer(report)
        return 128 + signal.SIGTERM if signal.SIGTERM in signals else 0

    def _answer(self, report: Report) -> None:
        if report.text:
            show(report.text, self._color)
        if trouble := why(report):
            say(trouble, prefix="")

    def _apply(self, event: AnyEvent) -> None:
        self._tree.apply(event)
        self._tally.apply(event)
        self._screen.apply(event)

    def _help(self) -> None:
        print(HELP)

    def _runs(self) -> None:
        for run in self._tree.walk():
            what = one_line(run.description or run.prompt)
            figures = f"{run.state.value}, {run.tools} tool uses, {tokens(run.usage.total_tokens)} tokens"
            print(f"{'  ' * run.depth}{run.run_id}  {run.agent}  {what}  ({figures})")
        print(f"mudroom show {self._session.id[:8]} --run ID shows the transcript of one." if self._tree.roots else "None yet.")

    def _cost(self) -> None:
        total = sum(root.subtree.total_tokens for root in self._tree.roots)
        print(f"{tokens(total)} tokens in {len(self._tree.runs)} runs.")
        if self._tally.ledger.children:
            print(sentence(self._tally.ledger))


def show(text: str, color: str) -> None:
    """Print an answer: as Markdown on a terminal with colours, as it is elsewhere."""
    text = clean(text)
    if not colored(sys.stdout, color):
        print(text, flush=True)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console(file=sys.stdout, force_terminal=True).print(Markdown(text))
