"""Document 000: M. Arngren, *Modelling cognitive representations* (2007), chapter 3."""
