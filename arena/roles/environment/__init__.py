"""The environment role: owns the games of one match."""
