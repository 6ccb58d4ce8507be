"""HTTP/1.1 client for POST requests with streamed responses, on `asyncio.Protocol`."""
