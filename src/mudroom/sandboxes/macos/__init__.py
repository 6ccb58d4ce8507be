"""macOS sandbox: Seatbelt. Experimental."""
