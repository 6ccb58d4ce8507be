"""Traces of sessions for OpenTelemetry."""
