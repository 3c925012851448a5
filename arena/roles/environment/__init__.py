"""The environment role: steps the games of one match."""
