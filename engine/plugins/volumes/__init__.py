"""The plugins of storage: which nodes a pod's volumes can be on, and what binds them there.

The modules around them compute over rows and change nothing; only the plugins know the framework.
"""
