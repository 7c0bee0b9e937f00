"""Pure: what leaders and followers of a partition know of each other, and the sequences of producers."""
