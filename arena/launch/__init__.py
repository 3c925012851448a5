"""How a run starts and ends: `arena train` and `arena evaluate`, in one process or under MPI."""
