"""Drills: load on a target, deeds done to it meanwhile, and what the users of the endpoint saw."""
