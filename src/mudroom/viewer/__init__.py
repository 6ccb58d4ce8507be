"""The run viewer: a page that shows a session's runs, what each context held, and what came back."""
