"""State: the pods that wait, in order, and what would wake them."""
