"""Workspaces: the files that a run sees, as implementations of the port Workspace."""
