"""Document 001: D. Yus Lopez, *Machine learning: binary non-negative matrix factorization* (2015)."""
