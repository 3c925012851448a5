"""How bytes travel between roles: messages, links and orders. No role sees MPI or threads.

A role holds an `Endpoint`. It carries two kinds of traffic:

- *messages*: byte strings with a tag, for control and for the groups: `send`, and `receive` from one role or from
  `ANY_SOURCE`;
- *links*: two fixed buffers between an environment and one of its seats, for the step path: `post`, `wait`. An
  environment opens the links of all its seats at once (`open_links`).

`scheduler` lets the roles of one process take turns. `links` holds the links in memory that both ends see, within a
process or a node; `shared_memory` that memory, and the areas of groups. `doorbell` wakes a process of the same node.
`mpi` carries messages between processes, and the links whose ends have no memory in common.

An *order* is a message to a process instead of a role: it is handled at delivery and wakes no role. The root uses one
to ask for the `status` of all roles; `arena.diagnostics.remote_stacks` reads the stacks of a process that does not
answer.
"""

from arena.transport.endpoint import ANY_SOURCE, Bytes, Endpoint, Link, Order, Tag

__all__ = ["ANY_SOURCE", "Bytes", "Endpoint", "Link", "Order", "Tag"]
