"""How a run starts and ends: training, evaluation, tournaments, in one process or under MPI.

train       which of the three ways; `mpirun` starts the launcher, `ranks` is one process under it
leader      what rank 0 does beyond its roles, in `leading` for training: `prepare` (or `resuming`), the root
            (`hosting`), what is played next (`staging`, `rounds`), and the result
tournament  `contesting` leads it, among `contestants`; `exploit` is led by `exploiting`
repair      what those who live do when a process has died
slurm       a batch file; `doctor` whether a machine is ready; `probe` what a plan will need
"""
