"""Sends load: connections, pacing, worker processes, journal, the run."""
