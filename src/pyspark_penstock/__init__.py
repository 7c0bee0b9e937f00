"""Where Spark looks for the format "penstock" when nobody registered it."""
