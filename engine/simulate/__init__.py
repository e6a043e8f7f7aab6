"""The scheduler without a server: a lab that has all the rest, and samples of metrics for it."""
