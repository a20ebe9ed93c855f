"""Takes secrets out of the arguments that `ps` shows of this process."""

from __future__ import annotations

import sys

_ARG_START, _ARG_END = 47, 48
"""Fields of /proc/self/stat, from 0, by proc(5): where the arguments lie in memory."""


def hide_in_process_title(secrets: set[str]) -> None:
    """Overwrite each secret, in place, in the memory from which the system shows a process's arguments.

    The command line has then been parsed, and Python's copies are its own. Where /proc is not to be had nothing
    happens: the user has typed the secret into a command line and knows who can see it.
    """
    if not secrets or not sys.platform.startswith("linux"):
        return
    try:
        with open("/proc/self/stat", "rb") as stat:
            # the second field, the program's name in parentheses, may hold spaces
            fields = [b"", b"", *stat.read().rpartition(b")")[2].split()]
        start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            arguments = memory.read(end - start)
            hidden = arguments
            for secret in sorted(secrets, key=len, reverse=True):
                raw = secret.encode("utf-8", "surrogateescape")
                hidden = hidden.replace(raw, b"*" * len(raw))
            if hidden != arguments:
                memory.seek(start)
                memory.write(hidden)
    except (OSError, ValueError, IndexError):
        return
