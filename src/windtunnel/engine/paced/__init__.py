"""The paced target: tokens at exact instants, each carrying its true one, with the oddities and faults of the field."""
