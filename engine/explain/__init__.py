"""Why a pod is where it is, or is not: decisions taken apart, node by node and line by line.

Decides nothing: it asks the framework that decided, about the snapshot of the decision.
"""
