"""Values: data types without I/O, clock or asyncio. All other packages build on them."""
