"""The prompt's terminal: background, title and notifications, clipboard."""
