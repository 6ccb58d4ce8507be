"""Lines that begin with `!`: the user's shell commands."""

from __future__ import annotations

from ...._projections.engine_text import quote, wrap
from ...._projections.safe_text import sanitize
from ...actions.prompt_calls import ShellEscape
from ...output.text import Line
from .file_prompts import PromptScreen


async def run_shell_line(conversation: PromptScreen, command: str) -> None:
    """Run a shell command; its output is added to the next prompt."""
    if not command:
        return
    shell = ShellEscape(conversation.session, conversation.settings.home)
    text = await conversation.run_stoppable(shell.run(command))
    text = "(interrupted)" if text is None else text
    conversation.add_to_prompt(wrap("shell", f"$ {command}\n{quote(text)}"))
    rows: list[Line] = [[(f"  {sanitize(row)}", "dim")] for row in text.splitlines()]
    conversation.ui.scrollback.write_lines(*rows, [("", "")])
