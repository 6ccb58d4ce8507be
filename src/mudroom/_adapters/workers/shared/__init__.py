"""Worker processes that several sessions share.

Each session has a part of the process: a channel, a config and services of its own. The messages
of all parts cross the one connection of the process, each with the number of its session.
"""
