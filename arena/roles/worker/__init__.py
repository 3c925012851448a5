"""The worker role: runs one algorithm for one seat."""
