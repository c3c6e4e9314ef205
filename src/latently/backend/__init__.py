"""What the arrays are: namespaces, threads and small linear algebra. Knows nothing of models."""
