"""Hooks in settings files: programs and addresses that are called at fixed points of a run."""
