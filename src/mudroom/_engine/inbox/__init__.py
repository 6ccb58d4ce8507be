"""Messages that arrive while a run works, and the background work that sends most of them.

inbox.py          messages to one run: stored before they are read, read exactly once
message_hooks.py  hooks for messages of the user
background.py     the open background work of one run: waits for it, and stops it
notification.py   the message that reports the end of background work
"""
