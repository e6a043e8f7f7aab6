"""The admission webhook: a process of its own that says at once what the reloader would say.

Judges by `inforce` and its reloader; decides about no pod and puts nothing in force.
"""
