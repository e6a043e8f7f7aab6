"""The text of a test file becomes tests to run.

Parses, looks up attributes and merges fixtures; `engine.policytests` builds the cluster, asks the
policies and judges.
"""
