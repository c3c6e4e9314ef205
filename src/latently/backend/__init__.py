"""Array namespaces, threads and small linear algebra. Independent of models."""
