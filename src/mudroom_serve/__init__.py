"""The HTTP service `mudroom serve`: sessions for many users, events in and a stream of events out.

The journals stay the only truth about runs. See README.md for the parts.
"""
