"""Bytes to events and back, without I/O: HTTP/1.1, server-sent events, the API's dialects, control messages."""
