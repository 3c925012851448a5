"""The root: admits ranks, records, ends legs, watches for processes that hang."""
