"""HTTP extenders, called as kube-scheduler calls them: what they are sent, what they say, when.

Decides nothing: what they say goes into the cycle as an `Opinion`. `server` is the other side: it
answers a stock kube-scheduler.
"""
