"""Sandboxes: where the commands of a run are executed, from tier full to tier refuse."""
