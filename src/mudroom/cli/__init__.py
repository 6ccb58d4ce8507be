"""Screens: they fold events and send intents; of the loop they know nothing."""
