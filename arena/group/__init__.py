"""What the workers of one policy do together: collectives, reductions, samples without a barrier."""
