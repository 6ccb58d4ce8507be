"""Run viewer: a web page with a session's runs, their contexts and their reports."""
