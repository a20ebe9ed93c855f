"""Every error of a source tree, explained from the code and from nothing else."""

from windtunnel.catalog.hooks import CatalogFilter, install

__all__ = ["CatalogFilter", "install"]
