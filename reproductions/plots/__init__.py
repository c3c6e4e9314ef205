"""Pictures that only reproductions need; each function gives a matplotlib figure."""
