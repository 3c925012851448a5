"""The records of a run in its folder: episodes, metrics, checkpoints, faults, TensorBoard files.

`boundary` stores from where a run can be resumed; `merge_order` brings the episodes of all matches into one order.
"""
