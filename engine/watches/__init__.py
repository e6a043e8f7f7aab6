"""What policies read beside nodes and pods, watched while one of them reads it."""
