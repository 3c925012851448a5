"""The room of communication: roles talk through it and never see MPI or threads.

A role holds an `Endpoint`. Two kinds of talk go through it:

- *messages*, whole byte strings with a tag, for control and for the groups: `send`, `receive` (from one role, or
  from `ANYONE`);
- a *link*, two fixed buffers between an environment and one of its seats, for the step path: `post`, `wait`. An
  environment has those of all its seats at once, its `table`.

`host` lets the roles of one process take turns. `tables` lays links and `shared` the areas of groups in memory that
both ends see, within a process or a node; `links` are their ends, `doorbell` wakes whom a message is for. `mpi` carries
messages between processes, and the links whose ends see no common memory.

With fault tolerance `sentinel` sees a process of the node die, and `mpi` lets those who live agree.

An *order* is a message to a process rather than to a role: it is obeyed at delivery, while the roles sleep on. By one
the root asks for their `whereabouts`; `peeking` looks into a process that does not answer.
"""

from arena.transport.endpoint import ANYONE, Bytes, Endpoint, Link, Order, Tag

__all__ = ["ANYONE", "Bytes", "Endpoint", "Link", "Order", "Tag"]
