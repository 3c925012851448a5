"""The room of communication: roles talk through it and never see MPI or threads.

A role holds an `Endpoint`. Two kinds of talk go through it:

- *messages*, whole byte strings with a tag, for control and for the groups: `send`, `receive` (from one role, or
  from `ANYONE`);
- a *link*, two fixed buffers between an environment and one of its seats, for the step path: `post`, `wait`.

`host` carries them between the roles of one process, `mpi` between processes; `doorbell` wakes whom they are for.
"""

from arena.comm.interface import ANYONE, Endpoint, Link, Tag

__all__ = ["ANYONE", "Endpoint", "Link", "Tag"]
