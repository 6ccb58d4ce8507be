"""The interactive prompt.

`session_loop` runs one conversation after another. A `Conversation` executes the input lines as
turns of a `SessionDriver`, and folds the events. A `UI` shows it:

- `PlainUI` reads and writes lines.
- `PromptUI` draws. `PromptScreen` owns the terminal, `Panel` the state above the input line,
  `KeyActions` the input.
"""
