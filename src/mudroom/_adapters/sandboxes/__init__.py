"""Sandboxes, which execute a run's commands, from tier full to tier refuse."""
