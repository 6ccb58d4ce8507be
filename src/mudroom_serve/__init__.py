"""The HTTP service `mudroom serve`: sessions for many users, with events in and streams out.

The journals remain the only truth about runs. See README.md for the parts.
"""
