"""Record batches and the records in them, one by one or as columns."""
