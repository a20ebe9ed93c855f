"""The transaction without I/O: its table, its messages, the machines of rank and coordinator, and takeover."""
