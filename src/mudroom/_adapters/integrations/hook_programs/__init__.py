"""Hooks in settings files: programs and addresses called at fixed points of a run."""
