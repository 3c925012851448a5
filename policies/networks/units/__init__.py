"""The network of games with units: a transformer that attends over all units of a row, and lets each of them choose.

`tokens` reads what a row sees; `packing`, `attention` and `relative` are the blocks; `decisions` and `heads` say what
is chosen; `network` puts them together; `options` is what a configuration says about it; `inputs` is what happens to
observations before they go in.
"""
