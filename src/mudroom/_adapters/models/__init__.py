"""Model adapters: one module per wire, all over the HTTP client in `_http`, and two fakes."""
