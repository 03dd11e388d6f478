"""What several test folders share: programs, random and written out, and what judges them."""
