"""What is read of a pod: its needs, its terms, who owns it, and which pods a selector finds.

Knows nothing of nodes, plugins or the cluster. Everybody above may read it.
"""
