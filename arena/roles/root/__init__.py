"""The root role: starts and ends the legs, records the run, detects roles that hang."""
