"""What keys ask for at the drawn prompt: of the conversation, of a child, of what is drawn above the line."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from prompt_toolkit.buffer import Buffer

from ...projections.safe_text import clean
from ..output.scrollback import Paper
from ..output.text import one_line
from .panel import Panel
from .paste import Pasted

if TYPE_CHECKING:
    from .conversation import Talk

HURRY = 1.5
"""Seconds within which a second Ctrl-C leaves, and a second Esc goes back."""

QUICK = (
    "/help",
    "/cost",
    "/usage",
    "/tasks",
    "/runs",
    "/context",
    "/agents",
    "/skills",
    "/copy",
    "?",
)
"""Commands that do not wait for the run that is under way."""

NEXT_MODE = "/mode next"
"""What Shift+Tab stands for. Nobody typed it, so it is not shown as typed; what it does says so itself."""


class Deeds:
    """One method a wish.

    Arguments:
        buffer: the input line. paper: what stays on the screen. close: leaves the prompt. fresh: draws it anew, soon.
        spawn: runs something beside the conversation.
    """

    def __init__(
        self,
        buffer: Buffer,
        panel: Panel,
        paper: Paper,
        *,
        close: Callable[[], None],
        fresh: Callable[[], None],
        spawn: Callable[[Coroutine[Any, Any, object]], object],
    ) -> None:
        self.buffer, self.pasted = buffer, Pasted()
        self._panel, self._paper, self._close, self._fresh, self._spawn = (
            panel,
            paper,
            close,
            fresh,
            spawn,
        )
        self._pressed = self._escaped = -HURRY

    @property
    def busy(self) -> bool:
        """Whether a run is under way."""
        return self._talk is not None and self._talk.busy

    @property
    def choosing(self) -> bool:
        """Whether a question waits for an answer."""
        return self._panel.choice is not None

    @property
    def on_child(self) -> bool:
        """Whether a child is marked or open."""
        return not self.choosing and bool(self._child) and not self._panel.addressee

    @property
    def movable(self) -> bool:
        """Whether arrows move something above the line."""
        panel = self._panel
        return not panel.addressee and (
            self.choosing or panel.opened is not None or panel.selectable
        )

    @property
    def _talk(self) -> Talk | None:
        return self._panel.talk

    @property
    def _child(self) -> str:
        return self._panel.opened.run.run_id if self._panel.opened else self._panel.selected

    def submit(self) -> None:
        """Enter: send the line, to the conversation or to the child that is spoken to."""
        line = self.buffer.text
        if not line.strip():
            return
        self.buffer.append_to_history()
        self.buffer.reset()
        self._pressed = -HURRY
        talk, choice = self._talk, self._panel.choice
        if not self._panel.addressee:
            self._back()
        if choice and choice.words:
            self._panel.answer(line.strip())
        elif talk and self._panel.addressee:
            self._say_to(talk, self._panel.addressee, line)
            self._panel.addressee = ""
        elif talk and talk.busy and line.split()[0] in QUICK:
            self._spawn(talk.obey(line))
        else:
            self._panel.put(line)

    def steer(self) -> None:
        """Ctrl+S: a word to the model that is at work, without waiting for its end."""
        talk, line = self._talk, self.buffer.text.strip()
        if not (talk and talk.busy and talk.tree.roots):
            self.submit()
            return
        if line:
            self.buffer.append_to_history()
            self.buffer.reset()
        elif self._panel.queue:
            line = self._panel.queue.popleft()
        if line and not talk.session.steer(talk.tree.roots[-1].run_id, self.pasted.expanded(line)):
            self._panel.put(line)

    def escape(self) -> None:
        """Esc: back out of what is open, else stop the run, else, pressed twice, clear the line or go back in the conversation."""
        panel, talk, now = self._panel, self._talk, time.monotonic()
        twice, self._escaped = now - self._escaped < HURRY, now
        if panel.choice:
            panel.answer(None)
        elif panel.addressee or panel.opened:
            panel.addressee, panel.opened = "", None
        elif panel.selected:
            panel.selected = ""
        elif talk and talk.busy:
            self._stop(talk)
        elif twice and self.buffer.text:
            self.buffer.reset()
        elif twice:
            self._panel.put("/rewind")
        self._fresh()

    def interrupt(self) -> None:
        """Ctrl+C: stop the run, else clear the line; soon after another one, leave."""
        talk, now = self._talk, time.monotonic()
        twice, self._pressed = now - self._pressed < HURRY, now
        if twice:
            self._close()
        elif self._panel.choice:
            self._panel.answer(None)
        elif talk and (talk.busy or self._panel.queue):
            self._stop(talk)
        elif self.buffer.text:
            self.buffer.reset()
        else:
            self._paper.lines([("Ctrl-C again, or Ctrl-D, leaves.", "dim")])

    def leave(self) -> None:
        """Ctrl+D."""
        self._close()

    def expand(self) -> None:
        """Ctrl+O: the last result in full."""
        self._back()
        if self._talk:
            self._paper.lines(
                *self._talk.writer.expanded() or [[("There is no result yet.", "dim")]]
            )

    def tasks(self) -> None:
        """Ctrl+T: into the list of children at work; when none is, all runs of the session."""
        self._back()
        if self._panel.selectable:
            self._panel.move(-1)
            self._fresh()
        elif self._talk:
            self._spawn(self._talk.obey("/tasks"))

    def stop_all(self) -> None:
        """Ctrl+X Ctrl+K."""
        if self._talk and self._talk.busy:
            self._stop(self._talk)

    def next_mode(self) -> None:
        """Shift+Tab: the next permission mode, once the run is over."""
        self._panel.put(NEXT_MODE)

    def next_model(self) -> None:
        """Alt+P: choose another model, once the run is over."""
        self._panel.put("/model")

    def background(self) -> None:
        """Ctrl+B: a run stays where it is, and need not be left alone to go on."""
        self._back()
        self._paper.lines(
            [
                (
                    "The run goes on while you type: Enter queues a line behind it, Ctrl+S tells the model now.",
                    "dim",
                )
            ]
        )

    def shortcuts(self) -> None:
        """`?` on an empty line."""
        self._back()
        if self._talk:
            self._spawn(self._talk.obey("?"))

    def paste(self, text: str) -> None:
        """A paste, as a mark if it is long."""
        self.buffer.insert_text(self.pasted.mark(text))

    def move(self, step: int) -> None:
        """An arrow key above an empty line."""
        self._panel.move(step)
        self._fresh()

    def take(self) -> None:
        """Enter on what is marked."""
        panel = self._panel
        if panel.choice:
            panel.answer(panel.choice.items[panel.choice.at][0])
        elif panel.selected and self._talk and not panel.opened:
            panel.open(self._talk, panel.selected)
        self._fresh()

    def pick(self, n: int) -> None:
        """A digit in a question."""
        choice = self._panel.choice
        if choice and n <= len(choice.items):
            self._panel.answer(choice.items[n - 1][0])

    def to_child(self, key: str) -> None:
        """`m`, `w` or `x` on the child that is marked or open."""
        talk = self._talk
        if talk and key == "m":
            self._panel.addressee = self._child
        elif talk and key == "w":
            self._remark(
                talk, self._child, "is asked to wrap up", done=talk.session.wrap_up(self._child)
            )
        elif talk:
            self._remark(talk, self._child, "is stopped", done=talk.session.cancel(self._child))
        self._fresh()

    def _back(self) -> None:
        """Close an open transcript, so that what comes is seen."""
        if self._panel.opened:
            self._panel.opened = None
            self._fresh()

    def _remark(self, talk: Talk, run_id: str, words: str, *, done: bool) -> None:
        run = talk.tree.runs[run_id]
        what = words if done else "has ended already"
        self._paper.lines(
            [(f"  {one_line(run.agent)}#{run_id} {what}", "yellow" if done else "dim")]
        )

    def _say_to(self, talk: Talk, run_id: str, line: str) -> None:
        heard = talk.session.steer(run_id, self.pasted.expanded(line))
        self._remark(talk, run_id, f"is told: {clean(line)}", done=heard)

    def _stop(self, talk: Talk) -> None:
        """Stop the run; what was queued behind it goes back into the line."""
        talk.interrupt()
        if waiting := "\n".join(self._panel.queue):
            self._panel.queue.clear()
            self.buffer.text = f"{waiting}\n{self.buffer.text}".rstrip("\n")
            self.buffer.cursor_position = len(self.buffer.text)
