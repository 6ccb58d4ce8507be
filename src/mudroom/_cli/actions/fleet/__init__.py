"""Actions for the worker processes of running sessions."""
