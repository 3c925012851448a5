"""How a run starts and ends: `arena train` and `arena evaluate`, in one process or under MPI.

train       which of the three ways; `mpirun` starts the launcher, `ranks` is one process under it
leading     what rank 0 does beyond its roles: `prepare` (or `resuming`), the root (`hosting`), and the result
repair      what those who live do when a process has died
slurm       a batch file; `doctor` whether a machine is ready; `probe` what a plan will need
"""
