"""Text that somebody saw → the records that it comes from. Pure: what was read, and a store to look things up in."""
