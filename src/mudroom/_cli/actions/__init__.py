"""Actions: what each command does, without click."""
