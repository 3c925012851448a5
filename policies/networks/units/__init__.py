"""The network of games with units: a transformer that attends over all units of a row, and lets each of them choose."""
