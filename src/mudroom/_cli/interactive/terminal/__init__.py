"""Terminal of the prompt: its background, its title and notifications, its clipboard."""
