"""The prompt's terminal: its background, its title and notifications, its clipboard."""
