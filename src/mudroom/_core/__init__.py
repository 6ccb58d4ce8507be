"""Values: no I/O, no clock, no asyncio. Everything else is built on these."""
