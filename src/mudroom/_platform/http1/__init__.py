"""HTTP/1.1 client with streamed responses, on `asyncio.Protocol`."""
