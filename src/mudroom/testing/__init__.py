"""For tests, ours and those of whoever writes adapters: a scripted model server, clocks that take no time.

Nothing is imported here: name the module you want (`mudroom.testing.server`, `mudroom.testing.clock`).
"""
