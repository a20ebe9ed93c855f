"""The command line: flags to one frozen configuration to one call."""
