"""Classes of a user's own in built-in algorithms: encoders and further losses."""
