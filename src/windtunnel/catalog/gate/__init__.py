"""Grounding: what a model says of an error is kept only where the lines that it cites bear it out."""
