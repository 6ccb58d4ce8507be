"""The input line: mentions, history, pastes, early and queued lines."""
