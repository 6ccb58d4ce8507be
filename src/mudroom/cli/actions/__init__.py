"""The work behind the commands, without click."""
