"""Every error of a source tree, explained from the code and from nothing else."""
