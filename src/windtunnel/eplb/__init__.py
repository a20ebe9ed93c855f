"""Expert-parallel load balancing."""
