"""The launch daemon: standard library only, because it runs in another process."""
