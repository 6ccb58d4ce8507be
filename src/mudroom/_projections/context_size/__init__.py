"""What a context contains: the receipt of its compactions, and the shares of its parts."""
