"""Commands about data sets: what is here, and whether all of one can be used."""
