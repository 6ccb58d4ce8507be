"""macOS sandboxes."""
