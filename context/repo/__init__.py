"""Reading the repository: the one place in context/ that touches the file system (rule R5)."""
