"""kube-scheduler's in-tree plugins over columns; `registry` lists them.

They know the contract (`engine.framework`) and the objects, and nothing of cache, queue or network.
"""
