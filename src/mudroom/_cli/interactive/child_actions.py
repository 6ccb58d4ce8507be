"""Actions on the panel's child runs and commands: open, message, wrap up, stop, detach."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from ..._adapters.output_filters import Redactor
from ..._projections.safe_text import redact_event, sanitize
from ..output.scrollback import Scrollback
from ..output.text import Line, wrap
from .panel import Panel

if TYPE_CHECKING:
    from .conversation import Conversation, NextStep


# Columns of a child's name in a line about it.
MAX_NAME_COLUMNS = 48


class ChildActions:
    """Actions on the selected or open child; each prints its outcome.

    Arguments:
        redraw: draws the prompt again soon.
        start_task: runs an action beside the conversation.
    """

    def __init__(
        self,
        panel: Panel,
        scrollback: Scrollback,
        *,
        redraw: Callable[[], None],
        start_task: Callable[[Coroutine[object, object, NextStep | None]], object],
    ) -> None:
        self._panel = panel
        self._scrollback = scrollback
        self._redraw = redraw
        self._start_task = start_task

    def detach(self, conversation: Conversation) -> None:
        """Send the selected child, or everything that the run waits for, to the background."""
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

    def open_transcript(self, conversation: Conversation, run_id: str) -> None:
        """Open the transcript of a run; that of a run that has ended is read from the record."""
        if not conversation.tree.runs[run_id].report:
            self._panel.open_transcript(run_id)
            return

        async def read() -> None:
            redact = Redactor(os.environ)
            events = [redact_event(event, redact) for event in await conversation.read_run(run_id)]
            self._panel.open_transcript(run_id, events)
            self._redraw()

        self._start_task(read())

    def show_output_path(self, conversation: Conversation, command_id: str) -> None:
        """Print the path of the file with the output of a background command."""
        command = conversation.tree.find_command(command_id)
        name = self._get_name(command_id)
        self._print(f"The output of {name} is in {command.output}." if command else "It has ended.")

    def act(self, conversation: Conversation, key: str) -> None:
        """Handle a key: `m` writes a message, `w` asks the child to wrap up, `x` stops it."""
        run_id = self._panel.child_run_id
        session = conversation.session
        name = self._get_name(run_id) if run_id else ""
        if not run_id:
            self._panel.hold_keys()  # the status line says that no child works
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

    def send(self, conversation: Conversation, run_id: str, text: str) -> None:
        """Send a message to a child. A named child without work begins its next run with it."""
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

    def _print(self, text: str) -> None:
        print_wrapped(self._scrollback, text)


def print_wrapped(scrollback: Scrollback, text: str, style: str = "dim") -> None:
    lines: list[Line] = [[(part, style)] for part in wrap(text, scrollback.columns() - 1)]
    scrollback.write_lines(*lines)
