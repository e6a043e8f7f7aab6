"""Decisions written down with all that they were made from, and made again from that."""
