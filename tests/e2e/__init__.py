"""Kubernetes' own end-to-end tests of scheduling, with Berth in the scheduler's place."""
