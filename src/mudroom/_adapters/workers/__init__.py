"""Adapters of the Worker port, for this process and for worker processes."""
