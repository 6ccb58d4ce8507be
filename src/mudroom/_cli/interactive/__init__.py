"""The interactive prompt.

`session_loop` opens one session after another. Each has a `Conversation`, which executes the input
lines and folds the events. A `UI` shows it:

- `PlainUI` reads and writes lines.
- `PromptUI` draws. `PromptScreen` owns the terminal, `Panel` the state above the input line,
  `LineQueue` and `KeyActions` the input.
"""
