"""The Berth policy language: text goes in, plans or diagnostics come out.

Pure: no I/O, no clock, no knowledge of the scheduler.
"""
