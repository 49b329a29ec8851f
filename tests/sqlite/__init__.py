"""What concerns the SQLite engine alone; what it has in common with others is the contract suite's."""
