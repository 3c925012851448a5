"""What remains of a run: episodes, metrics, checkpoints, faults, TensorBoard files, in one folder.

`boundary` says where a run can go on from; `ordering` gives the episodes of all matches one order.
"""
