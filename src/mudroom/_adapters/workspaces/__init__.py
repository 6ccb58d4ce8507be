"""Workspaces: the files a run sees, as implementations of the port Workspace."""
