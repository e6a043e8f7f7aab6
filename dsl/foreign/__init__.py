"""What others write, and how it is written here: forms, fields, calls.

Knows neither the grammar nor the tree; what it proposes is tried by others.
"""
