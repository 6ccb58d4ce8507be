"""What the keys do at the drawn prompt."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from prompt_toolkit.buffer import Buffer

from ..._adapters.output_filters import Redactor
from ..._core.messages import estimate_tokens
from ..._projections.safe_text import redact_event, sanitize
from ...errors import UsageError
from ..actions.prompts import MANY_TOKENS
from ..output.scrollback import Scrollback
from ..output.text import Line, wrap
from .panel import Panel
from .questions.choice import Choice, match_answer

if TYPE_CHECKING:
    from .conversation import Conversation, NextStep

# How soon a second Ctrl-C must follow to exit, and a second Esc to clear the line or rewind.
DOUBLE_PRESS_SECONDS = 1.5

# The line sent by Shift+Tab. Not echoed, because it prints its own message.
NEXT_MODE_COMMAND = "/mode next"

# Columns for a child's name in a line about it.
MAX_NAME_COLUMNS = 48

# Line breaks and characters; longer pastes are inserted as placeholders.
MAX_PASTED_LINES, MAX_PASTED_CHARACTERS = 3, 800

_PLACEHOLDER = re.compile(r"\[Pasted text #(\d{1,9})(?!\d)[^\[\]\n]*+\]")


class PasteStore:
    """Long pastes: a short placeholder in the input line, the full text in the prompt."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def add(self, text: str) -> str:
        """Store a paste; return the text to insert, a placeholder if it is long."""
        # Terminals paste line breaks as carriage returns.
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        breaks = text.rstrip("\n").count("\n")
        if breaks < MAX_PASTED_LINES and len(text) <= MAX_PASTED_CHARACTERS:
            return text
        self._texts.append(text)
        size = f"+{breaks} lines" if breaks else f"{len(text):,} characters"
        if (tokens := estimate_tokens(text)) >= MANY_TOKENS:
            size += f", about {tokens:,} tokens"
        return f"[Pasted text #{len(self._texts)} {size}]"

    def expand(self, line: str) -> str:
        return _PLACEHOLDER.sub(self._get_replacement, line)

    def _get_replacement(self, match: re.Match[str]) -> str:
        # The user may have typed a number of no paste.
        number = int(match[1])
        return self._texts[number - 1] if 0 < number <= len(self._texts) else match[0]


class KeyActions:
    """One method per key binding. `start_task` runs a command alongside the conversation."""

    def __init__(
        self,
        buffer: Buffer,
        panel: Panel,
        scrollback: Scrollback,
        *,
        put: Callable[[str], None],
        close: Callable[[], None],
        redraw: Callable[[], None],
        start_task: Callable[[Coroutine[object, object, NextStep | None]], object],
    ) -> None:
        self.buffer = buffer
        self.pastes = PasteStore()
        self.conversation: Conversation | None = None
        self._panel = panel
        self._put = put
        self._scrollback = scrollback
        self._close = close
        self._redraw = redraw
        self._start_task = start_task
        self._draft = ""
        self._interrupted_at = -DOUBLE_PRESS_SECONDS
        self._escaped_at = -DOUBLE_PRESS_SECONDS

    @property
    def is_busy(self) -> bool:
        """True while the model, a compaction or a shell command is running, not just children."""
        return self.conversation is not None and not self.conversation.is_idle

    @property
    def is_working(self) -> bool:
        """True while a prompt is running or waiting for its children."""
        return self.conversation is not None and self.conversation.is_busy

    @property
    def _has_queued(self) -> bool:
        return self.conversation is not None and bool(self.conversation.lines.queued)

    @property
    def is_choosing(self) -> bool:
        return self._panel.choice is not None

    @property
    def is_searching(self) -> bool:
        return self._panel.choice is not None and self._panel.choice.is_searchable

    @property
    def is_steering(self) -> bool:
        """True if letters act on a child instead of being text."""
        panel = self._panel
        return panel.is_steering and not (self.is_choosing or panel.target_run_id)

    @property
    def can_move(self) -> bool:
        """True if the arrow keys move something above the input line."""
        return self.is_choosing or self.is_steering

    def submit(self) -> None:
        """Enter: send the line to the conversation or to the addressed child run."""
        line = self.buffer.text
        if not line.strip():
            return
        if self.is_searching:
            self.accept_selection()
            return
        self.buffer.append_to_history()
        self.buffer.reset()
        self._interrupted_at = -DOUBLE_PRESS_SECONDS
        choice = self._panel.choice
        target = self._panel.target_run_id
        if choice:
            self._answer(choice, line.strip())
        elif self.conversation and target:
            self._send(self.conversation, target, self.pastes.expand(line))
            self._close_message()
            self._panel.close_tree()
            self._redraw()
        else:
            self._put(line)

    def _answer(self, choice: Choice, line: str) -> None:
        """Answer the open question with a typed line, or list the possible answers."""
        answer = match_answer(choice.items, line)
        if self.conversation and line.split()[0] in self.conversation.commands:
            # As free text, a command would deny the call.
            choice.hint = f"Answer this question first, then type {line.split()[0]} again."
            self._redraw()
            return
        if answer is not None or choice.allows_free_text:
            self._panel.answer_choice(line if answer is None else answer)
            return
        choice.hint = f"Type a number from 1 to {len(choice.items)}, or press Esc to cancel."
        self._redraw()

    def steer(self) -> None:
        """Ctrl+S: send the line, or the first queued line, to the working model now."""
        conversation = self.conversation
        line = self.buffer.text.strip()
        if not conversation or conversation.is_idle or self._panel.target_run_id:
            self.submit()
            return
        if line:
            self.buffer.append_to_history()
            self.buffer.reset()
        elif queued := conversation.lines.take_back(only_first=True):
            (line,) = queued
        if line:
            conversation.steer(line)

    def escape(self) -> None:
        """Esc: close an open view, else stop the run; pressed twice, clear the line or rewind."""
        panel = self._panel
        now = time.monotonic()
        twice = now - self._escaped_at < DOUBLE_PRESS_SECONDS
        self._escaped_at = now
        if panel.choice:
            self._dismiss_question()
        elif panel.target_run_id:
            self._close_message()
        elif panel.pager:
            panel.pager = None
        elif panel.is_steering:
            panel.close_tree()
        elif self.is_busy or self._has_queued:
            self._stop()
        elif twice and self.buffer.text:
            self._clear_line()
        elif twice:
            self._put("/rewind")
        self._redraw()

    def interrupt(self) -> None:
        """Ctrl+C: stop the turn, else clear the line; pressed twice, stop all work, or exit."""
        now = time.monotonic()
        twice = now - self._interrupted_at < DOUBLE_PRESS_SECONDS
        self._interrupted_at = now
        if self._panel.choice:
            self._dismiss_question()
        elif (self.is_busy or self._has_queued) and not twice:
            self._stop()
        elif self.is_busy or (twice and self.conversation and self.conversation.background_work):
            self.stop_all()
        elif self.buffer.text:
            self._clear_line()
        elif twice:
            self._close()
        elif self.conversation and self.conversation.background_work:
            self._print("Press Ctrl-C again to stop the background work, Ctrl-D to leave.")
        else:
            self._print("Press Ctrl-C again or Ctrl-D to exit.")

    def _clear_line(self) -> None:
        """Clear the line, keeping it in the history."""
        self.buffer.append_to_history()
        self.buffer.reset()
        # The next drawing would load it, too late for an Up pressed before that.
        self.buffer.load_history_if_not_yet_loaded()
        self._print("The line is cleared; Up brings it back.")

    def _dismiss_question(self) -> None:
        """Close the question without an answer. The run that asked stops itself."""
        if self.is_searching:
            self.buffer.reset()
        self._panel.answer_choice(None)
        self._return_queued_lines()

    def leave(self) -> None:
        self._close()

    def show_full_result(self) -> None:
        """Ctrl+O: print the last tool result in full."""
        self._close_transcript()
        if not self.conversation:
            return
        if lines := self.conversation.writer.format_latest_result():
            self._scrollback.write_lines(*lines)
        else:
            self._print("No tool result yet.")

    def steer_children(self) -> None:
        """Ctrl+T: switch the keys to the tree, or back; without a child, list all runs."""
        panel = self._panel
        if panel.is_steering:
            panel.close_tree()
        else:
            panel.open_tree()
            if not panel.selected_run_id and self.conversation:
                self._put("/runs")
        self._redraw()

    def stop_all(self) -> None:
        """Ctrl+X Ctrl+K: stop the run and all its children."""
        self._return_queued_lines()
        if self.conversation:
            self.conversation.stop_all()

    def switch_mode(self) -> None:
        """Shift+Tab: change to the next permission mode once the run has ended."""
        self._put(NEXT_MODE_COMMAND)

    def choose_model(self) -> None:
        """Alt+P: choose another model once the run has ended."""
        self._put("/model")

    def detach(self) -> None:
        """Ctrl+B: send the marked child, or everything the run waits for, to the background."""
        if self.conversation and self.conversation.tree.roots:
            self._detach(self.conversation)
            self._redraw()

    def show_shortcuts(self) -> None:
        """`?` on an empty line: list the keys."""
        self._close_transcript()
        if self.conversation:
            self._put("?")

    def paste(self, text: str) -> None:
        self.buffer.insert_text(self.pastes.add(text))

    def paste_image(self) -> None:
        """Ctrl+V: insert the path of the clipboard's image; the prompt sends the image."""
        if self.conversation:
            self._start_task(self._insert_image(self.conversation))

    async def _insert_image(self, conversation: Conversation) -> None:
        from .terminal.clipboard_images import save_clipboard_image

        try:
            path = await asyncio.to_thread(
                save_clipboard_image, conversation.settings.home, os.environ
            )
        except (UsageError, OSError) as error:
            self._print(str(error))
            return
        self.buffer.insert_text(f"{shlex.quote(path)} ")

    def move_selection(self, step: int) -> None:
        """Arrow keys during a choice: move the mark by `step` rows."""
        self._panel.move_selection(step)
        self._redraw()

    def accept_selection(self) -> None:
        """Enter without a line: choose the marked answer or open the marked child run."""
        panel = self._panel
        if panel.choice and panel.choice.items:
            value = panel.choice.items[panel.choice.index][0]
            if self.is_searching:
                self.buffer.reset()
            panel.answer_choice(value)
        elif panel.is_command_selected and self.conversation:
            self._show_output_path(self.conversation, panel.selected_run_id)
        elif panel.selected_run_id and not panel.pager and self.conversation:
            self._open_transcript(self.conversation, panel.selected_run_id)
        elif not panel.pager:
            panel.close_tree()
        self._redraw()

    def act_on_child(self, key: str) -> None:
        """`m`, `w` or `x` on the selected child run: send a message, ask to wrap up, stop."""
        if self.conversation:
            self._act(self.conversation, key)
            if self._panel.target_run_id:
                self._draft = self.buffer.text
                self.buffer.reset()
            self._redraw()

    def ignore_key(self) -> None:
        """Other letters while the keys act on the tree: a line typed blindly is no prompt."""
        self._panel.hold_keys()

    def _close_message(self) -> None:
        """Return to the line the user was writing before the message to a child."""
        self._panel.target_run_id = ""
        self.buffer.text = self._draft
        self.buffer.cursor_position = len(self._draft)
        self._draft = ""

    def pick_option(self, number: int) -> None:
        """Choose an answer by its number, counted from 1; a larger number may begin a text."""
        choice = self._panel.choice
        if choice and choice.allows_free_text and number > len(choice.items):
            self.buffer.insert_text(str(number))
        elif choice:
            self._answer(choice, str(number))

    def _close_transcript(self) -> None:
        # It would hide new output.
        if self._panel.pager:
            self._panel.pager = None
            self._redraw()

    def _print(self, text: str) -> None:
        print_wrapped(self._scrollback, text)

    def _stop(self) -> None:
        self._return_queued_lines()
        if self.conversation and self.is_busy:
            self.conversation.interrupt()

    def _return_queued_lines(self) -> None:
        lines = self.conversation.lines.take_back() if self.conversation else ()
        if queued := "\n".join(lines):
            self.buffer.text = f"{queued}\n{self.buffer.text}".rstrip("\n")
            self.buffer.cursor_position = len(self.buffer.text)

    def _detach(self, conversation: Conversation) -> None:
        """Send the selected child, or everything the run waits for, to the background."""
        root = conversation.tree.roots[-1]
        run_id = self._panel.child_run_id
        names = [self._get_name(run_id)] if run_id else []
        if not run_id:
            waited_for = conversation.tree.list_waited_for(root.run_id)
            names += [self._get_name(child.run_id) for child in waited_for]
            names += ["a command"] * list(root.open_calls.values()).count("command")
        if conversation.session.runs.detach(run_id or None):
            text = f"To the background: {', '.join(names)}. The model is notified at the end."
            print_wrapped(self._scrollback, text, "yellow")
        else:
            self._print(
                "No call waits for a child or a command. The run continues while you type: Enter "
                "queues a line, Ctrl+S sends it to the model now."
            )

    def _open_transcript(self, conversation: Conversation, run_id: str) -> None:
        """Open a run's transcript, read from the record if the run has ended."""
        if not conversation.tree.runs[run_id].report:
            self._panel.open_transcript(run_id)
            return

        async def read() -> None:
            redact = Redactor(os.environ)
            events = [redact_event(event, redact) for event in await conversation.read_run(run_id)]
            self._panel.open_transcript(run_id, events)
            self._redraw()

        self._start_task(read())

    def _show_output_path(self, conversation: Conversation, command_id: str) -> None:
        command = conversation.tree.find_command(command_id)
        name = self._get_name(command_id)
        self._print(f"The output of {name} is in {command.output}." if command else "It has ended.")

    def _act(self, conversation: Conversation, key: str) -> None:
        """Handle a key: `m` writes a message, `w` asks the child to wrap up, `x` stops it."""
        run_id = self._panel.child_run_id
        session = conversation.session
        name = self._get_name(run_id) if run_id else ""
        if not run_id:
            self._panel.hold_keys()  # the status line says that no child is running
        elif self._panel.has_ended(run_id):
            self._print(f"{name} has already ended.")
        elif self._panel.is_command_selected and key != "x":
            self._print(f"{name} takes no message; x stops it.")
        elif self._panel.is_idle(run_id) and key != "m":
            self._print(f"{name} is idle. A message starts its next run: press m.")
        elif key == "m":
            self._panel.target_run_id = run_id
        elif key == "w":
            self._print_outcome(name, f"Asked {name} to wrap up", done=session.runs.wrap_up(run_id))
        else:
            self._print_outcome(name, f"Stopped {name}", done=session.runs.cancel(run_id))

    def _send(self, conversation: Conversation, run_id: str, text: str) -> None:
        """Send a message to a child. An idle named child begins its next run with it."""
        if name := conversation.tree.runs[run_id].name:
            self._start_task(conversation.send_message(name, text))
            return
        name = self._get_name(run_id)
        done = conversation.session.runs.send(run_id, text)
        self._print_outcome(name, f"Message to {name}: {sanitize(text)}", done=done)

    def _print_outcome(self, name: str, message: str, *, done: bool) -> None:
        if done:
            self._scrollback.write_lines([(f"  {message}", "yellow")])
        else:
            self._print(f"  {name} has already ended.")

    def _get_name(self, run_id: str) -> str:
        return self._panel.name_child(run_id, MAX_NAME_COLUMNS)


def print_wrapped(scrollback: Scrollback, text: str, style: str = "dim") -> None:
    lines: list[Line] = [[(part, style)] for part in wrap(text, scrollback.columns() - 1)]
    scrollback.write_lines(*lines)
