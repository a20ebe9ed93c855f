"""Records to numbers: one table of metrics, steady state, validity."""
