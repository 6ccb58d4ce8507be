"""What keys ask for at the drawn prompt: of the conversation, of a child, of what is drawn above the line."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from prompt_toolkit.buffer import Buffer

from ...projections.safe_text import sanitize
from ..output.scrollback import Scrollback
from ..output.text import sanitize_line
from .panel import Panel
from .paste import PasteStore

if TYPE_CHECKING:
    from .conversation import Conversation

DOUBLE_PRESS_SECONDS = 1.5
"""Seconds within which a second Ctrl-C leaves, and a second Esc goes back."""

IMMEDIATE_COMMANDS = (
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

NEXT_MODE_COMMAND = "/mode next"
"""What Shift+Tab stands for. Nobody typed it, so it is not shown as typed; what it does says so itself."""


class KeyActions:
    """One method a wish.

    Arguments:
        buffer: the input line. paper: what stays on the screen. close: leaves the prompt. fresh: draws it anew, soon.
        spawn: runs something beside the conversation.
    """

    def __init__(
        self,
        buffer: Buffer,
        panel: Panel,
        paper: Scrollback,
        *,
        close: Callable[[], None],
        redraw: Callable[[], None],
        start_task: Callable[[Coroutine[Any, Any, object]], object],
    ) -> None:
        self.buffer, self.pastes = buffer, PasteStore()
        self._panel, self._paper, self._close, self._fresh, self._spawn = (
            panel,
            paper,
            close,
            redraw,
            start_task,
        )
        self._pressed = self._escaped = -DOUBLE_PRESS_SECONDS

    @property
    def is_busy(self) -> bool:
        """Whether a run is under way."""
        return self._talk is not None and self._talk.is_busy

    @property
    def is_choosing(self) -> bool:
        """Whether a question waits for an answer."""
        return self._panel.choice is not None

    @property
    def is_child_selected(self) -> bool:
        """Whether a child is marked or open."""
        return not self.is_choosing and bool(self._child) and not self._panel.message_target

    @property
    def can_move(self) -> bool:
        """Whether arrows move something above the line."""
        panel = self._panel
        return not panel.message_target and (
            self.is_choosing or panel.pager is not None or panel.has_selectable_child
        )

    @property
    def _talk(self) -> Conversation | None:
        return self._panel.conversation

    @property
    def _child(self) -> str:
        return self._panel.pager.run.run_id if self._panel.pager else self._panel.selected

    def submit(self) -> None:
        """Enter: send the line, to the conversation or to the child that is spoken to."""
        line = self.buffer.text
        if not line.strip():
            return
        self.buffer.append_to_history()
        self.buffer.reset()
        self._pressed = -DOUBLE_PRESS_SECONDS
        talk, choice = self._talk, self._panel.choice
        if not self._panel.message_target:
            self._back()
        if choice and choice.words:
            self._panel.answer_choice(line.strip())
        elif talk and self._panel.message_target:
            self._say_to(talk, self._panel.message_target, line)
            self._panel.message_target = ""
        elif talk and talk.is_busy and line.split()[0] in IMMEDIATE_COMMANDS:
            self._spawn(talk.handle_line(line))
        else:
            self._panel.queue_line(line)

    def steer(self) -> None:
        """Ctrl+S: a word to the model that is at work, without waiting for its end."""
        talk, line = self._talk, self.buffer.text.strip()
        if not (talk and talk.is_busy and talk.tree.roots):
            self.submit()
            return
        if line:
            self.buffer.append_to_history()
            self.buffer.reset()
        elif self._panel.queue:
            line = self._panel.queue.popleft()
        if line and not talk.session.send(talk.tree.roots[-1].run_id, self.pastes.expand(line)):
            self._panel.queue_line(line)

    def escape(self) -> None:
        """Esc: back out of what is open, else stop the run, else, pressed twice, clear the line or go back in the conversation."""
        panel, talk, now = self._panel, self._talk, time.monotonic()
        twice, self._escaped = now - self._escaped < DOUBLE_PRESS_SECONDS, now
        if panel.choice:
            panel.answer_choice(None)
        elif panel.message_target or panel.pager:
            panel.message_target, panel.pager = "", None
        elif panel.selected:
            panel.selected = ""
        elif talk and talk.is_busy:
            self._stop(talk)
        elif twice and self.buffer.text:
            self.buffer.reset()
        elif twice:
            self._panel.queue_line("/rewind")
        self._fresh()

    def interrupt(self) -> None:
        """Ctrl+C: stop the run, else clear the line; soon after another one, leave."""
        talk, now = self._talk, time.monotonic()
        twice, self._pressed = now - self._pressed < DOUBLE_PRESS_SECONDS, now
        if twice:
            self._close()
        elif self._panel.choice:
            self._panel.answer_choice(None)
        elif talk and (talk.is_busy or self._panel.queue):
            self._stop(talk)
        elif self.buffer.text:
            self.buffer.reset()
        else:
            self._paper.write_lines([("Ctrl-C again, or Ctrl-D, leaves.", "dim")])

    def leave(self) -> None:
        """Ctrl+D."""
        self._close()

    def show_full_result(self) -> None:
        """Ctrl+O: the last result in full."""
        self._back()
        if self._talk:
            self._paper.write_lines(
                *self._talk.writer.format_latest_result() or [[("There is no result yet.", "dim")]]
            )

    def select_tasks(self) -> None:
        """Ctrl+T: into the list of children at work; when none is, all runs of the session."""
        self._back()
        if self._panel.has_selectable_child:
            self._panel.move_selection(-1)
            self._fresh()
        elif self._talk:
            self._spawn(self._talk.handle_line("/tasks"))

    def stop_all(self) -> None:
        """Ctrl+X Ctrl+K."""
        if self._talk and self._talk.is_busy:
            self._stop(self._talk)

    def next_mode(self) -> None:
        """Shift+Tab: the next permission mode, once the run is over."""
        self._panel.queue_line(NEXT_MODE_COMMAND)

    def choose_model(self) -> None:
        """Alt+P: choose another model, once the run is over."""
        self._panel.queue_line("/model")

    def explain_background(self) -> None:
        """Ctrl+B: a run stays where it is, and need not be left alone to go on."""
        self._back()
        self._paper.write_lines(
            [
                (
                    "The run goes on while you type: Enter queues a line behind it, Ctrl+S tells the model now.",
                    "dim",
                )
            ]
        )

    def show_shortcuts(self) -> None:
        """`?` on an empty line."""
        self._back()
        if self._talk:
            self._spawn(self._talk.handle_line("?"))

    def paste(self, text: str) -> None:
        """A paste, as a mark if it is long."""
        self.buffer.insert_text(self.pastes.mark(text))

    def move_selection(self, step: int) -> None:
        """An arrow key above an empty line."""
        self._panel.move_selection(step)
        self._fresh()

    def accept_selection(self) -> None:
        """Enter on what is marked."""
        panel = self._panel
        if panel.choice:
            panel.answer_choice(panel.choice.items[panel.choice.index][0])
        elif panel.selected and self._talk and not panel.pager:
            panel.open_transcript(self._talk, panel.selected)
        self._fresh()

    def pick_option(self, n: int) -> None:
        """A digit in a question."""
        choice = self._panel.choice
        if choice and n <= len(choice.items):
            self._panel.answer_choice(choice.items[n - 1][0])

    def act_on_child(self, key: str) -> None:
        """`m`, `w` or `x` on the child that is marked or open."""
        talk = self._talk
        if talk and key == "m":
            self._panel.message_target = self._child
        elif talk and key == "w":
            self._remark(
                talk, self._child, "is asked to wrap up", done=talk.session.wrap_up(self._child)
            )
        elif talk:
            self._remark(talk, self._child, "is stopped", done=talk.session.cancel(self._child))
        self._fresh()

    def _back(self) -> None:
        """Close an open transcript, so that what comes is seen."""
        if self._panel.pager:
            self._panel.pager = None
            self._fresh()

    def _remark(self, talk: Conversation, run_id: str, words: str, *, done: bool) -> None:
        run = talk.tree.runs[run_id]
        what = words if done else "has ended already"
        self._paper.write_lines(
            [(f"  {sanitize_line(run.agent)}#{run_id} {what}", "yellow" if done else "dim")]
        )

    def _say_to(self, talk: Conversation, run_id: str, line: str) -> None:
        heard = talk.session.send(run_id, self.pastes.expand(line))
        self._remark(talk, run_id, f"is told: {sanitize(line)}", done=heard)

    def _stop(self, talk: Conversation) -> None:
        """Stop the run; what was queued behind it goes back into the line."""
        talk.interrupt()
        if waiting := "\n".join(self._panel.queue):
            self._panel.queue.clear()
            self.buffer.text = f"{waiting}\n{self.buffer.text}".rstrip("\n")
            self.buffer.cursor_position = len(self.buffer.text)
