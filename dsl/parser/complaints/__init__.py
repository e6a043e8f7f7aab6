"""What is wrong with a statement that cannot be read; loaded with the first one.

`order` has the table of all attempts, in the order in which they are tried.
"""
